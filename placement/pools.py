"""Which machines a task is dealt from: with or without GPUs, in its zone or anywhere.

A pool is a stretch of slots where the layout allows it, so that columns are read without a copy.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement.room import GPU, Slots

if TYPE_CHECKING:
    from placement.index import MachineIndex

Pool = slice | Slots
ANYWHERE = -1
NOWHERE = -2
"""In the place of a zone's code."""
_EMPTY = slice(0, 0)
_HELD_AT_LEAST = 2
"""A stretch may hold so many slots for every machine of the pool; the others stand empty."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the tasks of a rule are dealt from."""

    pool: Pool
    zone: int
    shift: int | None
    """Of the rule's bit; None where every machine of the pool suits it."""


class PoolTable:
    """The pools of one index, worked out again when its layout changes."""

    def __init__(self) -> None:
        self._layout = -1
        self._known: dict[tuple[bool, int], Pool] = {}

    def of(self, index: "MachineIndex", zone: int, *, with_gpu: bool) -> Pool:
        """Every machine of a zone (a code, or ANYWHERE) that has GPUs, or that has none."""
        if self._layout != index.layout:
            self._known.clear()
            self._layout = index.layout
        key = (with_gpu, zone)
        if key not in self._known:
            self._known[key] = self._found(index, zone, with_gpu)
        return self._known[key]

    def _found(self, index: "MachineIndex", zone: int, with_gpu: bool) -> Pool:
        if zone == NOWHERE:
            return _EMPTY
        slots = index.slots
        present = index.present[:slots]
        members = present & ((index.room.capacity[GPU, :slots] > 0) == with_gpu)
        if zone != ANYWHERE:
            members &= index.zone[:slots] == zone
        there = np.flatnonzero(members)
        if not len(there):
            return _EMPTY
        stretch = slice(int(there[0]), int(there[-1]) + 1)
        others = int(np.count_nonzero(present[stretch])) != len(there)
        sparse = stretch.stop - stretch.start > _HELD_AT_LEAST * len(there)
        return there if others or sparse else stretch


def size(pool: Pool) -> int:
    """How many slots it has."""
    return pool.stop - pool.start if isinstance(pool, slice) else len(pool)


def slots_of(pool: Pool, first: int, count: int) -> Slots:
    """So many of its slots, from a place on."""
    if isinstance(pool, slice):
        return np.arange(pool.start + first, pool.start + first + count)
    return pool[first : first + count]
