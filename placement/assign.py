"""Batch assignment: shapes in, slots and devices out, room taken on the index.

The plain meaning: for each task in order, of the machines that pass every predicate now, the one
with the best score now. Knows no task by name, and writes no verdicts.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placement.demand import Batch
from placement.index import MachineIndex
from placement.policy import DEFAULT_POLICY, Policy
from placement.scan import Scan, draw_ties

UNPLACED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """Columns beside those of the batch."""

    slot: npt.NDArray[np.int32]
    """The machine (`MachineIndex.machine(slot)` names it), or UNPLACED."""
    devices: npt.NDArray[np.uint64]
    """The GPU devices on it, as bits (`placement.devices.named` lists them)."""
    waiting: tuple[int, ...]
    """Codes of the shapes that fit nowhere at the end; `explain(index, shape)` says why."""


def assign(
    index: MachineIndex, batch: Batch, policy: Policy = DEFAULT_POLICY, seed: int = 0
) -> Assigned:
    """Place what fits and take its room. Equal inputs and seed give equal results.

    Room only shrinks meanwhile, so a shape that has failed once is not looked at again. A task for
    which there is no machine waits, and holds up nobody behind it.
    """
    slots = np.full(len(batch), UNPLACED, dtype=np.int32)
    devices = np.zeros(len(batch), dtype=np.uint64)
    draw = draw_ties(index, seed)
    scans: dict[int, Scan] = {}
    full: dict[int, None] = {}
    touched: list[int] = []
    for at, code in enumerate(batch.code.tolist()):
        if code in full:
            continue
        shape = batch.shapes[code]
        scan = scans.get(code)
        if scan is None:
            scan = scans[code] = Scan(index, shape, policy, draw)
        slot = scan.best(touched)
        if slot is None:
            full[code] = None
            continue
        devices[at] = index.take(slot, shape)
        slots[at] = slot
        touched.append(slot)
    return Assigned(slots, devices, tuple(full))
