"""Scorers: how good is that machine for this shape, in [0, 1]? Knows nothing of weights or order.

A scorer is (index, shape, at) -> one number per machine of `at`, meaningful where the shape fits.
The order of the floating-point steps is part of the contract: the oracle repeats it to the bit.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from placement.demand import Shape
from placement.devices import WHOLE_MILLI
from placement.index import PACKED, MachineIndex
from placement.neighbours import Presence
from placement.pairs import At, Mask

Score = npt.NDArray[np.float64]
Scorer = Callable[[MachineIndex, Shape, At], Score]


def packing(index: MachineIndex, shape: Shape, at: At) -> Score:
    """Least stranded: the cosine between what the task takes and what the machine has free, of cpu,
    memory and gpu as parts of the machine. A task that takes in the proportion of what is there
    leaves nothing stranded beside the resource that runs out first, and a task without need of a
    gpu keeps away from idle ones. Literal best-fit, which looks only at how much is left, strands
    most where demands differ from machines.
    """
    share = index.share[:, : index.slots][:, at]
    takes = _asked(shape) * share
    free = _parts(_there(index, at), share)
    along = takes[0] * free[0] + takes[1] * free[1] + takes[2] * free[2]
    lengths = _square(takes) * _square(free)
    cosine: Score = np.divide(
        along, np.sqrt(lengths), out=np.zeros_like(along), where=lengths > 0.0
    )
    np.minimum(cosine, 1.0, out=cosine)
    return cosine


def load(index: MachineIndex, shape: Shape, at: At) -> Score:
    """Most left over: the mean part of cpu, memory and gpu that would still be free."""
    share = index.share[:, : index.slots][:, at]
    part = _parts(_there(index, at) - _asked(shape), share)
    mean: Score = (part[0] + part[1] + part[2]) / np.maximum((share > 0.0).sum(axis=0), 1)
    return mean


def best_fit(index: MachineIndex, shape: Shape, at: At) -> Score:
    """Least left over."""
    return 1.0 - load(index, shape, at)


def spread(index: MachineIndex, shape: Shape, at: At, fits: Mask) -> Score:
    """1 where the zone, rack or machine has fewest of the service among those that still have room
    for one more, and 1 / (1 + n) where it has n more than those."""
    rules = shape.constraints
    assert rules.service is not None
    assert rules.spread is not Spread.NONE
    counts = index.spread_counts(Presence(shape.team, rules.service), rules.spread, at)
    fewest = np.min(counts, where=fits, initial=np.iinfo(np.int32).max)
    score: Score = 1.0 / (1.0 + np.maximum(counts - fewest, 0))
    return score


def _asked(shape: Shape) -> Score:
    """What packing looks at, as a column: cpu, memory, devices (a share is a part of one)."""
    cpu_milli, memory_mib, *_ = shape.resources.vector()
    asked = [cpu_milli, memory_mib, shape.gpu_total_milli / WHOLE_MILLI]
    return np.array(asked, dtype=np.float64)[:, np.newaxis]


def _there(index: MachineIndex, at: At) -> Score:
    """The same of what is free."""
    there: Score = index.free[:PACKED, : index.slots][:, at].astype(np.float64)
    there[2] = index.devices.left[: index.slots][at] / WHOLE_MILLI
    return there


def _parts(quantities: Score, share: Score) -> Score:
    parts: Score = quantities * share
    np.maximum(parts, 0.0, out=parts)
    np.minimum(parts, 1.0, out=parts)
    return parts


def _square(parts: Score) -> Score:
    length: Score = parts[0] * parts[0] + parts[1] * parts[1] + parts[2] * parts[2]
    return length
