"""What a batch learns about scarcity while it looks at every machine: whom to look for no more."""

import numpy as np

from placement.demand import Batch
from placement.index import MachineIndex
from placement.pairs import Mask
from placement.pools import Pool, size, slots_of
from placement.room import GPU, Column, Slots


class Scarce:
    """The shapes of one kind of machines that have not been placed by hands."""

    def __init__(self, index: MachineIndex, batch: Batch, codes: Column, *, with_gpu: bool) -> None:
        self._index = index
        self._batch = batch
        self._with_gpu = with_gpu
        least = batch.ask[:, codes].min(axis=1, initial=np.iinfo(np.int32).max)
        self._least = [(column, int(n)) for column, n in enumerate(least) if n and column != GPU]
        self._pools: dict[int, Slots] = {}
        self._hopeless: Mask = np.zeros(len(batch.shapes), dtype=np.bool_)

    def narrowed(self, pool: Pool) -> Slots:
        """A pool without the machines that have too little for any of the shapes."""
        found = self._pools.get(id(pool))
        if found is None:
            enough = np.ones(size(pool), dtype=np.bool_)
            for column, amount in self._least:
                enough &= self._index.free[column][pool] >= amount
            found = self._pools[id(pool)] = slots_of(pool, 0, size(pool))[enough]
        return found

    def hopeless(self, code: int) -> bool:
        """True when a shape that asks for no more has found nothing."""
        return bool(self._hopeless[code])

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
            if self._index.neighbours.anyone_shuns and code in batch.bound:
                no_more[:] = False
        no_more[code] = True
        fresh = np.flatnonzero(no_more & ~self._hopeless)
        np.logical_or(self._hopeless, no_more, out=self._hopeless)
        shapes = [batch.shapes[at] for at in fresh.tolist()]
        self._index.remember_full(shapes, with_gpu=self._with_gpu)
