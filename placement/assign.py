"""Batch assignment: shapes in, slots and devices out, room taken on the index.

The plain meaning. Tasks are served band by band, in rounds. In a round every task has a *hand* of
machines, no machine is in two hands, and the task takes the best machine of its hand that passes
every predicate. A round deals out all machines of the pool, so a task that is alone in a round
sees every machine; with more tasks than the pool has hands of HAND machines, further rounds follow.
Who found nothing in its hand is dealt a larger one, and at last looks at every machine, so that a
task waits only when no machine can take it. Machines with GPUs are a pool of their own, for tasks
that need one and for those that found no other machine.
"""

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from placement.dealing import Dealer, Tasks
from placement.demand import Batch
from placement.gradient import latest_mix
from placement.hands import NO_FIT, Hands, barred, chosen, one_pool
from placement.index import MachineIndex
from placement.policy import DEFAULT_POLICY, Policy
from placement.pools import size, slots_of
from placement.room import GPU, Slots
from placement.spreads import OVER, SpreadCounts

UNPLACED = -1
HAND = 100
"""Machines that a task is dealt at least, where there are so many."""
GPU_HAND = 400
"""The same among machines with GPUs."""
LARGE_HAND = 2_000
"""The same for those that found nothing among the first."""


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """Columns beside those of the batch."""

    slot: npt.NDArray[np.int32]
    """The machine (`MachineIndex.machine(slot)` names it), or UNPLACED."""
    devices: npt.NDArray[np.uint64]
    """The GPU devices on it, as bits (`placement.devices.named` lists them)."""
    least_hand: int
    """The fewest machines that a task of a round was dealt; 0 without a round."""
    waiting: tuple[int, ...]
    """Codes of the shapes that fit nowhere at the end; `explain(index, shape)` says why."""


def assign(
    index: MachineIndex,
    batch: Batch,
    policy: Policy = DEFAULT_POLICY,
    seed: int = 0,
    *,
    hand: int = HAND,
) -> Assigned:
    """Place what fits and take its room. Equal inputs and seed give equal results.

    A shape that has failed is not looked at again until some machine has more room than it had.
    """
    work = _Work(index, batch, policy, random.Random(seed), hand)
    full = np.array([shape in index.full for shape in batch.shapes], dtype=np.bool_)
    for band in _bands(batch):
        work.serve(band[~full[batch.code[band]]])
    waiting = np.unique(batch.code[work.slot == UNPLACED]).tolist()
    index.remember_full(batch.shapes[code] for code in waiting)
    return Assigned(work.slot, work.devices, work.least_hand, tuple(waiting))


def _bands(batch: Batch) -> list[Tasks]:
    tasks = np.arange(len(batch))
    if batch.band is None:
        return [tasks]
    return np.split(tasks, np.flatnonzero(np.diff(batch.band)) + 1)


class _Work:
    """What one batch has got so far."""

    def __init__(
        self, index: MachineIndex, batch: Batch, policy: Policy, chance: random.Random, hand: int
    ) -> None:
        self.slot = np.full(len(batch), UNPLACED, dtype=np.int32)
        self.devices = np.zeros(len(batch), dtype=np.uint64)
        self.least_hand = 0
        self._index = index
        self._batch = batch
        self._policy = policy
        self._chance = chance
        self._hand = hand
        self._spreads = SpreadCounts(index, batch)

    def serve(self, tasks: Tasks) -> None:
        """Everything that fits, of one band."""
        codes = self._batch.code[tasks]
        needs_gpu = (self._batch.ask[GPU, codes] > 0) | (self._batch.gpu_milli[codes] > 0)
        left = self._serve_from(tasks[~needs_gpu], with_gpu=False)
        rest = np.sort(np.concatenate([left, tasks[needs_gpu]]))
        self._serve_from(rest, with_gpu=True)

    def _serve_from(self, tasks: Tasks, *, with_gpu: bool) -> Tasks:
        """Rounds with hands, then with large ones, then every machine: who is left fits nowhere."""
        if not len(tasks):
            return tasks
        mix = latest_mix(self._index, self._batch) if with_gpu else None
        dealer = Dealer(self._index, self._batch, self._spreads, self._chance, mix=mix)
        least = max(self._hand, GPU_HAND) if with_gpu else self._hand
        for hand in (least, max(least, LARGE_HAND)):
            for family in dealer.families(tasks, in_turn=hand == least):
                for mine, hands in dealer.rounds(family, hand):
                    self._round(mine, hands, family.over)
            tasks = tasks[self.slot[tasks] == UNPLACED]
            if not len(tasks):
                return tasks
        self._look_everywhere(dealer, tasks)
        left: Tasks = tasks[self.slot[tasks] == UNPLACED]
        return left

    def _round(self, tasks: Tasks, hands: Hands, over: Spread) -> None:
        """Filter, score, assign, commit."""
        self.least_hand = min(self.least_hand or hands.k, hands.k)
        bad = barred(hands)
        counts = None if over is Spread.NONE else self._spreads.table(hands, over)
        turn = self._chance.randrange(hands.k)
        row = chosen(bad, self._policy.score(hands, bad, counts), turn)
        column = np.flatnonzero(row != NO_FIT)
        device = None if hands.device is None else hands.device[row[column], column]
        self._commit(tasks[column], hands.slot(row[column], column), device)

    def _look_everywhere(self, dealer: Dealer, tasks: Tasks) -> None:
        """Shape by shape over all machines: each sweep gives the best machines one task each."""
        codes = self._batch.code[tasks]
        narrow = _Narrow(self._index, self._batch.ask[:, codes].min(axis=1))
        for code in dict.fromkeys(codes.tolist()):
            source = dealer.source(code)
            pool = narrow.of(source.pool)
            waiting = tasks[codes == code]
            shape = self._batch.shapes[code]
            over = OVER[self._spreads.over[code]]
            alone = over is not Spread.NONE or shape.gpu_total_milli > 0
            shifts = None if source.shift is None else np.array([source.shift], dtype=np.int32)
            while len(waiting) and size(pool):
                hands = one_pool(
                    self._index,
                    self._batch,
                    pool,
                    0,
                    codes=self._batch.code[waiting[:1]],
                    shifts=shifts,
                    mix=dealer.mix,
                )
                bad = barred(hands)
                counts = None if over is Spread.NONE else self._spreads.table(hands, over)
                score = self._policy.score(hands, bad, counts)
                there = np.flatnonzero(bad[:, 0] >= 0)
                steps = score[there, 0].astype(np.int32)
                best = np.argsort(-steps, kind="stable")[: 1 if alone else len(waiting)]
                pool = slots_of(pool, 0, size(pool))[there]
                device = None if hands.device is None else hands.device[there[best], 0]
                self._commit(waiting[: len(best)], pool[best], device)
                waiting = waiting[len(best) :]

    def _commit(self, tasks: Tasks, slots: Slots, device: npt.NDArray[np.int8] | None) -> None:
        """Take the room: no two of these slots are the same."""
        batch, index = self._batch, self._index
        codes = batch.code[tasks]
        self.slot[tasks] = slots
        devices = batch.ask[GPU, codes] + batch.gpu_milli[codes] > 0
        if batch.with_extras:
            devices |= np.isin(codes, list(batch.with_extras))
        if devices.any():
            for at in np.flatnonzero(devices).tolist():
                shape = batch.shapes[int(codes[at])]
                bits = 1 << int(device[at]) if device is not None and shape.gpu_milli else None
                self.devices[tasks[at]] = index.take(int(slots[at]), shape, bits)
            slots, codes = slots[~devices], codes[~devices]
        index.take_many(slots, batch, codes)
        self._spreads.add(batch.code[tasks], self.slot[tasks])


class _Narrow:
    """Pools without the machines that have too little for any of the tasks that are left."""

    def __init__(self, index: MachineIndex, least: npt.NDArray[np.int32]) -> None:
        self._index = index
        self._least = [(column, int(n)) for column, n in enumerate(least) if n and column != GPU]
        self._known: dict[int, Slots] = {}

    def of(self, pool: slice | Slots) -> Slots:
        """What is left of a pool."""
        found = self._known.get(id(pool))
        if found is None:
            enough = np.ones(size(pool), dtype=np.bool_)
            for column, amount in self._least:
                enough &= self._index.free[column][pool] >= amount
            found = self._known[id(pool)] = slots_of(pool, 0, size(pool))[enough]
        return found
