"""Scorers: how good is that machine for this shape, in [0, 1]? Knows nothing of weights or order.

A scorer is (index, shape, at) -> one number per machine of `at`, meaningful where the shape fits.
The order of the floating-point steps is part of the contract: the oracle repeats it to the bit.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from placement.demand import Shape
from placement.index import PACKED, MachineIndex
from placement.neighbours import Presence
from placement.pairs import At, Mask

Score = npt.NDArray[np.float64]
Scorer = Callable[[MachineIndex, Shape, At], Score]


def left_over(index: MachineIndex, shape: Shape, at: At) -> tuple[Score, Score, Score]:
    """The parts of cpu, memory and gpu that would be free with one more task of the shape:
    their mean, their least and their greatest, over what the machine has of the three."""
    asked = np.array(shape.resources.vector()[:PACKED], dtype=np.int32)[:, np.newaxis]
    share = index.share[:, : index.slots][:, at]
    part = np.clip((index.free[:PACKED, : index.slots][:, at] - asked) * share, 0.0, 1.0)
    there = share > 0.0
    cpu, memory, gpu = part
    mean = (cpu + memory + gpu) / np.maximum(there.sum(axis=0), 1)
    least = np.where(there, part, 1.0).min(axis=0)
    return mean, least, part.max(axis=0)


def packing(index: MachineIndex, shape: Shape, at: At) -> Score:
    """Least stranded: what is left should be of one piece, so that the next task can use all of it.

    What is left beside the scarcest resource is of no use to anybody. Literal best-fit, which only
    looks at how much is left, strands most where demands differ from machines.
    """
    mean, least, greatest = left_over(index, shape, at)
    return 1.0 - (_STRANDED * (greatest - least) + (1.0 - _STRANDED) * mean)


def best_fit(index: MachineIndex, shape: Shape, at: At) -> Score:
    """Least left over."""
    mean, _, _ = left_over(index, shape, at)
    return 1.0 - mean


def load(index: MachineIndex, shape: Shape, at: At) -> Score:
    """Most left over: the machine that has least to do."""
    mean, _, _ = left_over(index, shape, at)
    return mean


_STRANDED = 0.5


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
