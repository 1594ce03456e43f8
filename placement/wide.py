"""Tasks whose rules look beyond the machine: one at a time, each after all that came before it.

Machines of two hands may stand in the same rack, so such tasks cannot choose beside each other. The
plain meaning: the others of the band are served first; then each of these, in order, takes the best
of all machines that every rule allows. Where a rule waits for other tasks (to be near them, or for
other domains to fill up), its task is asked again until nothing more is placed.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from placement.dealing import Tasks
from placement.demand import Batch, Shape
from placement.domains import Domains
from placement.feasible import SETTLED, feasible, may_use
from placement.hands import NO_FIT, SCORE_STEPS, Hands, Scores, Table, barred, chosen, one_pool
from placement.index import MachineIndex
from placement.mix import Mix
from placement.policy import Policy
from placement.pools import ANYWHERE, Pool, size, slots_of
from placement.room import Slots
from placement.spreads import OVER, SpreadCounts

EXACT_TASKS_MAX = 16
"""With more tasks than this each looks at a sample first, at all machines if that has none."""
SAMPLE = 2_000
"""Machines, evenly out of all."""
WISH_WEIGHT = 2.0
"""Of what a task prefers about its neighbours, against 1 for how well the machine is packed."""

Commit = Callable[[Tasks, Slots, npt.NDArray[np.int8] | None], None]


@dataclass(slots=True)
class Wide:
    """Those of one batch."""

    index: MachineIndex
    batch: Batch
    policy: Policy
    spreads: SpreadCounts
    chance: random.Random
    mix: Callable[[], Mix]
    """For machines with GPUs."""
    commit: Commit
    _domains: Domains | None = None
    _hoping: Tasks | None = None
    """Tasks of more important bands that a later task may help."""
    _pools: dict[tuple[int, bool], Pool] = field(default_factory=dict)

    def serve(self, tasks: Tasks) -> None:
        """All of one band that fit, and of those before it that fit by now."""
        if self._hoping is not None:
            tasks = np.concatenate([self._hoping, tasks])
        if not len(tasks):
            return
        if self._domains is None:
            self._domains = Domains(self.index, may_use)
        self._domains.forget()
        self._hoping, placed = self._pass(tasks)
        while placed and len(self._hoping):
            self._hoping, placed = self._pass(self._hoping)

    def _pass(self, tasks: Tasks) -> tuple[Tasks, int]:
        """Each of these once: those that a later task may help, and how many were placed."""
        failed: set[int] = set()
        hoping, placed = [], 0
        for task in tasks.tolist():
            code = int(self.batch.code[task])
            shape = self.batch.shapes[code]
            if code not in failed and self._place(task, shape, exact=len(tasks) <= EXACT_TASKS_MAX):
                placed += 1
                continue
            failed.add(code)
            if may_be_helped(shape):
                hoping.append(task)
        return np.array(hoping, dtype=np.intp), placed

    def _place(self, task: int, shape: Shape, *, exact: bool) -> bool:
        needs_gpu = shape.gpu_total_milli > 0
        for with_gpu in (True,) if needs_gpu else (False, True):
            if shape in self.index.full[with_gpu]:
                continue
            pool = self._pool(int(self.batch.rule[self.batch.code[task]]), with_gpu)
            step = 1 if exact else max(size(pool) // SAMPLE, 1)
            if step > 1:
                sample = _every(pool, self.chance.randrange(step), step)
                if self._take(task, shape, sample, with_gpu=with_gpu):
                    return True
            if self._take(task, shape, pool, with_gpu=with_gpu):
                return True
            if not may_be_helped(shape):
                self.index.remember_full([shape], with_gpu=with_gpu)
        return False

    def _take(self, task: int, shape: Shape, pool: Pool, *, with_gpu: bool) -> bool:
        """The best of these machines, if one can take the task."""
        assert self._domains is not None
        allowed = self._domains.allowed(shape, pool)
        if allowed is not None and not allowed.all():
            pool = slots_of(pool, 0, size(pool))[allowed]
        if not size(pool):
            return False
        code = self.batch.code[task : task + 1]
        mix = self.mix() if with_gpu else None
        hands = one_pool(self.index, self.batch, pool, 0, codes=code, shifts=None, mix=mix)
        bad = barred(hands)
        if not (bad >= 0).any():
            return False
        over = OVER[self.spreads.over[code[0]]]
        counts = None if over is Spread.NONE else self.spreads.table(hands, over)
        score = self.policy.score(hands, bad, counts)
        self._add_wishes(shape, hands, bad, score)
        row = chosen(bad, score, self.chance.randrange(hands.k))
        assert row[0] != NO_FIT
        column = np.zeros(1, dtype=np.intp)
        device = None if hands.device is None else hands.device[row, column]
        slots = hands.slot(row, column)
        self.commit(np.array([task], dtype=np.intp), slots, device)
        self._domains.add(shape, int(slots[0]))
        return True

    def _add_wishes(self, shape: Shape, hands: Hands, bad: Table, score: Scores) -> None:
        """What the task prefers, into the score of the machines that can take it."""
        assert self._domains is not None
        fit = np.flatnonzero(bad[:, 0] >= 0)
        wishes = self._domains.preference(shape, hands.all_slots()[fit, 0])
        if wishes is not None:
            share = np.float32(WISH_WEIGHT / (1.0 + WISH_WEIGHT))
            score *= np.float32(1.0) - share
            score[fit, 0] += wishes * (share * np.float32(SCORE_STEPS))

    def _pool(self, rule: int, with_gpu: bool) -> Pool:
        """The machines on which a rule, by its code, lets a task be."""
        found = self._pools.get((rule, with_gpu))
        if found is None:
            found = self.index.pools.of(self.index, ANYWHERE, with_gpu=with_gpu)
            suits = feasible(self.index, self.batch.rules[rule].shape, found, SETTLED)
            if not suits.all():
                found = slots_of(found, 0, size(found))[suits]
            self._pools[rule, with_gpu] = found
        return found


def _every(pool: Pool, first: int, step: int) -> Slots:
    """Its machines at so many places from each other."""
    if isinstance(pool, slice):
        return np.arange(pool.start + first, pool.stop, step)
    return pool[first::step]


def may_be_helped(shape: Shape) -> bool:
    """True when the shape may fit where it did not, because another task was placed."""
    rules = shape.constraints
    return any(near.required for near in rules.near) or any(even.required for even in rules.even)
