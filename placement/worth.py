"""What idle GPU time is worth to typical tasks: a table by what a machine has left of the rest.

Decides nothing, and knows no task in hand. Sums over the typical tasks are made once for a mix, so
that a round only looks them up, however many typical tasks there are.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from placement.devices import DEVICES_MAX, WHOLE_MILLI
from placement.room import Column, Slots

Parts = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Cells = npt.NDArray[np.intp]
"""Places in the table."""

CELLS_MAX = 2**22
"""Numbers in a table; the less common typical tasks are left out where it would have more."""
NEXT_TASKS = 12
"""Idle GPU time is worth what it is to that many tasks to come."""


@dataclass(frozen=True, slots=True, eq=False)
class Typical:
    """Columns with an entry per typical task, the commonest first."""

    cpu: Column
    memory: Column
    share: Column
    """Thousandths of one device; 0 for a task that asks for whole ones."""
    whole: Column
    weight: Parts
    """How often it comes; together 1 or a little less, in steps so large that sums are exact."""

    def __len__(self) -> int:
        return len(self.cpu)

    def first(self, number: int) -> "Typical":
        """The commonest of them."""
        return Typical(
            self.cpu[:number],
            self.memory[:number],
            self.share[:number],
            self.whole[:number],
            self.weight[:number],
        )


def usable(chance: Parts) -> Parts:
    """The chance that at least one of the next tasks can use it, from that of one task. In products
    alone, which are the same on every machine."""
    none = np.float32(1.0) - chance
    none *= none
    none *= none
    result: Parts = np.float32(1.0) - none * none * none
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """The table. Idle thousandths x of a device that somebody uses serve the tasks that ask for a
    share of at most x; f devices that nobody uses serve those too, and who asks for at most f whole
    ones; all of them only where the machine has the cpu and memory and meets their rules."""

    cells: Parts
    """By kind of machine, cpu, memory and size, as one row: the chance that the next tasks use it.
    Sizes are first those of shares, then those of whole devices, each from nothing up."""
    kind: Cells
    """By slot, which rules the machine meets."""
    cpu: Column
    """The different amounts asked for, ascending."""
    memory: Column
    by_share: Cells
    """By idle thousandths of a device, the place of the size among the sizes."""
    by_devices: Cells
    """By the number of devices that nobody uses, likewise."""
    sizes: int
    sorts: int
    """How many kinds there are."""

    @classmethod
    def of(cls, typical: Typical, kind: Cells, suits: Mask) -> Self:
        """`suits` is bool of shape (typical tasks, kinds)."""
        while len(typical) > 1 and _cells(typical) * suits.shape[1] > CELLS_MAX:
            typical = typical.first(len(typical) // 2)
        cpu, memory = np.unique(typical.cpu), np.unique(typical.memory)
        shares, devices = _sizes(typical.share), _sizes(typical.whole)
        sums = np.zeros(
            (suits.shape[1], len(cpu) + 1, len(memory) + 1, len(shares) + len(devices)),
            dtype=np.float32,
        )
        size = np.where(
            typical.share > 0,
            np.searchsorted(shares, typical.share),
            len(shares) + np.searchsorted(devices, typical.whole),
        )
        place = (
            np.searchsorted(cpu, typical.cpu) + 1,
            np.searchsorted(memory, typical.memory) + 1,
            size,
        )
        for number, suited in enumerate(suits[: len(typical)].T):
            np.add.at(sums[number], place, typical.weight * suited)
        of_shares, of_devices = sums[..., : len(shares)], sums[..., len(shares) :]
        for some in (of_shares, of_devices):
            for axis in (1, 2, 3):
                np.cumsum(some, axis=axis, out=some)
        of_devices += of_shares[..., -1:]
        return cls(
            cells=usable(sums).ravel(),
            kind=kind,
            cpu=cpu,
            memory=memory,
            by_share=_row(shares, WHOLE_MILLI),
            by_devices=len(shares) + _row(devices, DEVICES_MAX),
            sizes=sums.shape[-1],
            sorts=len(sums),
        )

    def at(self, slots: Slots, cpu: Column, memory: Column) -> Cells:
        """Where the sizes of these machines begin, so much of cpu and memory being free there."""
        cells = np.searchsorted(self.cpu, cpu, side="right")
        if self.sorts > 1:
            cells += self.kind.take(slots) * (len(self.cpu) + 1)
        cells *= len(self.memory) + 1
        cells += np.searchsorted(self.memory, memory, side="right")
        cells *= self.sizes
        return cells

    def of_each(self, there: Cells, part: Column) -> Parts:
        """In thousandths: idle thousandths of devices that somebody uses, device by device."""
        worth: Parts = self.cells.take(self.by_share.take(part) + there)
        worth *= part
        return worth

    def of_unused(self, there: Cells, count: Column) -> Parts:
        """Of so many devices that nobody uses; below none it is that of none."""
        count = np.maximum(count, 0)
        worth: Parts = self.cells.take(self.by_devices.take(count) + there)
        worth *= count * np.float32(WHOLE_MILLI)
        return worth


def _cells(typical: Typical) -> int:
    """How many numbers the table has for one kind of machine."""
    sizes = len(_sizes(typical.share)) + len(_sizes(typical.whole))
    return (len(np.unique(typical.cpu)) + 1) * (len(np.unique(typical.memory)) + 1) * sizes


def _sizes(asked: Column) -> Column:
    """Nothing, and what is asked for, ascending."""
    return np.append(np.int32(0), np.unique(asked[asked > 0]))


def _row(sizes: Column, most: int) -> Cells:
    """By amount from nothing to the most, the place of the last size that is not larger."""
    return np.searchsorted(sizes, np.arange(most + 1), side="right") - 1
