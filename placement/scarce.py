"""What a batch learns about scarcity while it looks at every machine: whom to look for no more."""

from collections.abc import Mapping

import numpy as np

from placement.demand import Batch
from placement.domains import anyone_shuns
from placement.index import MachineIndex
from placement.pairs import Mask
from placement.pools import ANYWHERE, Pool, Source, size, slots_of
from placement.room import GPU, Column, Slots

MANY_MACHINES = 10_000
_FEW_PART = 0.5
_TOGETHER_MAX = 64
"""Shapes that are compared with a pool at a time."""


class Scarce:
    """The shapes of one kind of machines that have not been placed by hands."""

    def __init__(
        self, index: MachineIndex, batch: Batch, codes: Column, *, with_gpu: bool, many: int
    ) -> None:
        self._many = many
        self._index = index
        self._batch = batch
        self._with_gpu = with_gpu
        least = batch.ask[:, codes].min(axis=1, initial=np.iinfo(np.int32).max)
        self._least = [(column, int(n)) for column, n in enumerate(least) if n and column != GPU]
        self.shapes = len(np.unique(codes))
        self._pools: dict[int, Slots] = {}
        self.hopeless: Mask = np.zeros(len(batch.shapes), dtype=np.bool_)
        """By shape: it, or one that asks for no more, has found nothing."""

    def narrowed(self, pool: Pool) -> Slots:
        """A pool without the machines that have too little for any of the shapes."""
        found = self._pools.get(id(pool))
        if found is None:
            enough = np.ones(size(pool), dtype=np.bool_)
            for column, amount in self._least:
                enough &= self._index.free[column][pool] >= amount
            found = self._pools[id(pool)] = slots_of(pool, 0, size(pool))[enough]
        return found

    @property
    def part_left(self) -> float:
        """How many of the machines have enough for the least of the shapes, as a part; 1 where
        leaving out the others would save little."""
        pool = self._index.pools.of(self._index, ANYWHERE, with_gpu=self._with_gpu)
        if size(pool) < self._many:
            return 1.0
        part = len(self.narrowed(pool)) / size(pool)
        return part if part < _FEW_PART else 1.0

    def rounds(self, tasks: int, hand: int) -> float:
        """How many rounds they would take, about, among those machines."""
        pool = self._index.pools.of(self._index, ANYWHERE, with_gpu=self._with_gpu)
        return tasks * hand / max(len(self.narrowed(pool)), 1)

    def give_up_without_room(self, sources: Mapping[int, Source]) -> None:
        """Give up the shapes for which no machine has enough, whatever else they ask."""
        by_pool: dict[int, list[int]] = {}
        for code, source in sources.items():
            by_pool.setdefault(id(source.pool), []).append(code)
        none: list[int] = []
        for codes in by_pool.values():
            pool = self.narrowed(sources[codes[0]].pool)
            for first in range(0, len(codes), _TOGETHER_MAX):
                some = codes[first : first + _TOGETHER_MAX]
                room = self._room_for(pool, some, [sources[code].shift for code in some])
                none += [code for code, has in zip(some, room.tolist(), strict=True) if not has]
        self.hopeless[none] = True
        shapes = [self._batch.shapes[code] for code in none]
        self._index.remember_full(shapes, with_gpu=self._with_gpu)

    def _room_for(self, pool: Slots, codes: list[int], shifts: list[int | None]) -> Mask:
        """By shape, whether a machine of the pool has enough and suits its rule."""
        fits: Mask = np.ones((len(pool), len(codes)), dtype=np.bool_)
        if shifts[0] is not None:
            bars = self._index.rules.bars[pool][:, np.newaxis]
            fits &= np.left_shift(bars, np.array(shifts, dtype=np.int32)) >= 0
        for free, amounts in zip(self._index.free, self._batch.ask[:, codes], strict=False):
            if amounts.any():
                fits &= np.maximum(free[pool], 0)[:, np.newaxis] >= amounts
        return np.asarray(fits.any(axis=0))

    def give_up(self, code: int) -> None:
        """The shape fits nowhere, and neither does any that asks for as much under the same rule.

        A shape that rules between tasks concern fails for itself alone.
        """
        batch = self._batch
        no_more: Mask = np.zeros(len(batch.shapes), dtype=np.bool_)
        if code not in batch.shunning and code not in batch.with_extras:
            no_more = np.asarray((batch.ask >= batch.ask[:, code, np.newaxis]).all(axis=0))
            no_more &= batch.gpu_milli >= batch.gpu_milli[code]
            no_more &= batch.rule == batch.rule[code]
            if anyone_shuns(self._index) and code in batch.bound:
                no_more[:] = False
        no_more[code] = True
        fresh = np.flatnonzero(no_more & ~self.hopeless)
        np.logical_or(self.hopeless, no_more, out=self.hopeless)
        shapes = [batch.shapes[at] for at in fresh.tolist()]
        self._index.remember_full(shapes, with_gpu=self._with_gpu)
