"""Batch assignment: shapes in, slots and devices out, room taken on the index.

The plain meaning. Tasks are served band by band, in rounds. In a round every task has a *hand* of
machines, no machine is in two hands, and the task takes the best machine of its hand that passes
every predicate. A round deals out all machines of the pool, so a task that is alone in a round
sees every machine; with more tasks than the pool has hands of HAND machines, further rounds follow.
Who found nothing in its hand is dealt a larger one, and at last looks at every machine, so that a
task waits only when no machine can take it. Machines with GPUs are a pool of their own, for tasks
that need one and for those that found no other machine. Tasks whose rules look beyond the machine
are served after the others of their band, one at a time (`placement.wide`).
"""

import random
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from placement.dealing import Dealer, Tasks
from placement.demand import Batch
from placement.hands import NO_FIT, Hands, barred, chosen, one_pool
from placement.index import MachineIndex
from placement.mix import Mix
from placement.policy import DEFAULT_POLICY, Policy
from placement.room import GPU, Column, Slots
from placement.scarce import MANY_MACHINES, Scarce
from placement.spreads import OVER, SpreadCounts
from placement.wide import Wide

UNPLACED = -1
HAND = 100
"""Machines that a task is dealt at least, where there are so many."""
GPU_HAND = 400
"""The same among machines with GPUs."""
LARGE_HAND = 2_000
"""The same for those that found nothing among the first."""
LEFT_HAND = 1_000
"""The same where few machines have enough for the least of them: the part that so many are of all
is dealt of those."""
_ROUND_COST = 8
"""A round takes about as long as to look everywhere for so many shapes."""


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
    many: int = MANY_MACHINES,
) -> Assigned:
    """Place what fits and take its room. Equal inputs and seed give equal results.

    A shape that has failed is not looked at again until some machine has more room than it had.
    From `many` machines on, those that have too little for all who are left are not dealt again.
    """
    work = _Work(index, batch, policy, random.Random(seed), hand=hand, many=many)
    for band in _bands(batch):
        work.serve(band)
    work.spreads.remember()
    index.demand.learn(batch, work.slot != UNPLACED)
    waiting = np.unique(batch.code[work.slot == UNPLACED]).tolist()
    return Assigned(work.slot, work.devices, work.least_hand, tuple(waiting))


def _bands(batch: Batch) -> list[Tasks]:
    tasks = np.arange(len(batch))
    if batch.band is None:
        return [tasks]
    return np.split(tasks, np.flatnonzero(np.diff(batch.band)) + 1)


class _Work:
    """What one batch has got so far."""

    def __init__(
        self,
        index: MachineIndex,
        batch: Batch,
        policy: Policy,
        chance: random.Random,
        *,
        hand: int,
        many: int,
    ) -> None:
        self.slot = np.full(len(batch), UNPLACED, dtype=np.int32)
        self.devices = np.zeros(len(batch), dtype=np.uint64)
        self.least_hand = 0
        self._index = index
        self._batch = batch
        self._policy = policy
        self._chance = chance
        self._hand = hand
        self._many = many
        self.spreads = SpreadCounts(index, batch)
        self._wide = Wide(
            *(index, batch, policy, self.spreads, chance),
            mix=lambda: self._mix,
            commit=self._commit,
        )

    @cached_property
    def _mix(self) -> Mix:
        return self._index.demand.mix(self._batch)

    def serve(self, tasks: Tasks) -> None:
        """Everything that fits, of one band."""
        wide = self._batch.wide[self._batch.code[tasks]]
        self._serve_together(tasks[~wide])
        self._wide.serve(tasks[wide])

    def _serve_together(self, tasks: Tasks) -> None:
        codes = self._batch.code[tasks]
        needs_gpu = (self._batch.ask[GPU, codes] > 0) | (self._batch.gpu_milli[codes] > 0)
        left = self._serve_from(tasks[~needs_gpu], with_gpu=False)
        rest = np.sort(np.concatenate([left, tasks[needs_gpu]]))
        self._serve_from(rest, with_gpu=True)

    def _serve_from(self, tasks: Tasks, *, with_gpu: bool) -> Tasks:
        """Rounds with hands, then with large ones, then every machine: who is left fits nowhere."""
        everybody = tasks
        tasks = tasks[~self._known_full(tasks, with_gpu=with_gpu)]
        if not len(tasks):
            return everybody
        mix = self._mix if with_gpu else None
        dealer = Dealer(self._index, self._batch, self.spreads, self._chance, mix=mix)
        least = max(self._hand, GPU_HAND) if mix is not None and len(mix.typical) else self._hand
        tasks = self._deal(dealer, tasks, least, in_turn=True)
        if len(tasks):
            scarce = self._scarce(tasks, with_gpu=with_gpu)
            dealer = Dealer(
                *(self._index, self._batch, self.spreads, self._chance), mix=mix, scarce=scarce
            )
            if scarce.part_left == 1:
                tasks = self._deal(dealer, tasks, max(least, LARGE_HAND), in_turn=False)
            else:
                large = max(least, int(LEFT_HAND * scarce.part_left))
                if scarce.rounds(len(tasks), large) * _ROUND_COST <= scarce.shapes:
                    tasks = self._deal(dealer, tasks, large, in_turn=False)
            self._look_everywhere(dealer, self._scarce(tasks, with_gpu=with_gpu), tasks)
        left: Tasks = everybody[self.slot[everybody] == UNPLACED]
        return left

    def _deal(self, dealer: Dealer, tasks: Tasks, hand: int, *, in_turn: bool) -> Tasks:
        """Rounds for all of them; who found nothing."""
        for family in dealer.families(tasks, in_turn=in_turn):
            for mine, hands in dealer.rounds(family, hand):
                self._round(mine, hands, family.over)
        left: Tasks = tasks[self.slot[tasks] == UNPLACED]
        return left

    def _with_room(self, dealer: Dealer, scarce: Scarce, tasks: Tasks) -> Tasks:
        """The tasks for which some machine has enough; the others are given up."""
        codes = self._batch.code[tasks]
        scarce.give_up_without_room(
            {code: dealer.source(code) for code in np.unique(codes).tolist()}
        )
        return tasks[~scarce.hopeless[codes]]

    def _scarce(self, tasks: Tasks, *, with_gpu: bool) -> Scarce:
        codes = self._batch.code[tasks]
        return Scarce(self._index, self._batch, codes, with_gpu=with_gpu, many=self._many)

    def _known_full(self, tasks: Tasks, *, with_gpu: bool) -> npt.NDArray[np.bool_]:
        full, shapes = self._index.full[with_gpu], self._batch.shapes
        if not full:
            return np.zeros(len(tasks), dtype=np.bool_)
        known = np.array([shape in full for shape in shapes], dtype=np.bool_)
        return np.asarray(known[self._batch.code[tasks]])

    def _round(self, tasks: Tasks, hands: Hands, over: Spread) -> None:
        """Filter, score, assign, commit."""
        self.least_hand = min(self.least_hand or hands.k, hands.k)
        bad = barred(hands)
        counts = None if over is Spread.NONE else self.spreads.table(hands, over)
        turn = self._chance.randrange(hands.k)
        row = chosen(bad, self._policy.score(hands, bad, counts), turn)
        column = np.flatnonzero(row != NO_FIT)
        device = None if hands.device is None else hands.device[row[column], column]
        self._commit(tasks[column], hands.slot(row[column], column), device)

    def _look_everywhere(self, dealer: Dealer, scarce: Scarce, tasks: Tasks) -> None:
        """Shape by shape over all machines: each sweep gives the best machines one task each."""
        tasks = self._with_room(dealer, scarce, tasks)
        codes = self._batch.code[tasks]
        for code in dict.fromkeys(codes.tolist()):
            if scarce.hopeless[code]:
                continue
            source = dealer.source(code)
            pool = scarce.narrowed(source.pool)
            shift = None if source.shift is None else np.array([source.shift], dtype=np.int32)
            waiting = tasks[codes == code]
            while len(waiting) and len(pool):
                pool, waiting = self._sweep(dealer, pool, shift, waiting)
            if len(waiting):
                scarce.give_up(code)

    def _sweep(
        self, dealer: Dealer, pool: Slots, shift: Column | None, waiting: Tasks
    ) -> tuple[Slots, Tasks]:
        """One task each for the best machines of the pool; what is left of both. Tasks that are to
        be spread, and those that take devices, change the scores of others: one at a time."""
        batch, code = self._batch, int(self._batch.code[waiting[0]])
        over = OVER[self.spreads.over[code]]
        one = over is not Spread.NONE or batch.shapes[code].gpu_total_milli > 0
        rest = {"codes": batch.code[waiting[:1]], "shifts": shift, "mix": dealer.mix}
        hands = one_pool(self._index, batch, pool, 0, **rest)
        bad = barred(hands)
        there = np.flatnonzero(bad[:, 0] >= 0)
        if not len(there):
            return pool[:0], waiting
        counts = None if over is Spread.NONE else self.spreads.table(hands, over)
        steps = self._policy.score(hands, bad, counts)[there, 0].astype(np.int32)
        best = np.argsort(-steps, kind="stable")[: 1 if one else len(waiting)]
        device = None if hands.device is None else hands.device[there[best], 0]
        self._commit(waiting[: len(best)], pool[there][best], device)
        return pool[there], waiting[len(best) :]

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
        self.spreads.add(batch.code[tasks], self.slot[tasks])
