"""Hands: the disjoint sets of machines that the tasks of one round look at, as a table (k, b).

Column t is the hand of task t, and row h its h-th machine, so that one NumPy call asks one question
about every machine of every hand. No machine is in two hands: whatever the tasks of a round choose,
they can all have it, and a round needs no order among its tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from domain.constraint import Constraints
from placement.demand import Batch, Shape
from placement.domains import Domains, anyone_shuns, shunned_over
from placement.feasible import may_use
from placement.index import MachineIndex
from placement.neighbours import Presence
from placement.pools import Pool, size, slots_of
from placement.room import GPU, Column, Slots

Table = npt.NDArray[np.int32]
"""int32 of shape (k, b)."""
Scores = npt.NDArray[np.float32]
"""float32 of shape (k, b)."""

SCORE_STEPS = 2**20
"""Scores nearer than one step are equal, and the machine that was dealt first has it."""
SIGN = np.int32(-(2**31))
_PACKED_BITS = 10
NO_FIT = -1


@dataclass(slots=True)
class Hands:
    """The hands of one round, and what its tasks ask, an entry per column."""

    index: MachineIndex
    batch: Batch
    codes: Column
    """Each task's shape."""
    shifts: Column | None
    """Each task's rule (`RuleTable.shift`); None: every machine of the pool suits them all."""
    stretch: slice | None
    slots: Slots | None
    """(k, b); where the hands are one stretch of slots, they are read without this."""
    k: int
    mix: object = None
    """The demand that machines with GPUs are kept fit for (`placement.mix.Mix`); None when the
    hands hold machines without GPUs."""
    device: npt.NDArray[np.int8] | None = None
    """(k, b): the device that a task for a share should have there, once a scorer has chosen."""
    asks: dict[int, Column] = field(init=False)
    """What is asked of the columns of which something is asked, GPUs apart."""

    def __post_init__(self) -> None:
        ask = self.batch.ask.take(self.codes, axis=1)
        self.asks = {c: ask[c] for c in range(len(ask)) if c != GPU and ask[c].any()}

    def of(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A column of the index as a table: what the machine in each place of each hand has."""
        if self.stretch is not None:
            table: npt.NDArray[Any] = column[self.stretch].reshape(self.k, len(self.codes))
            return table
        assert self.slots is not None
        return column.take(self.slots)

    def slot(self, rows: Column, columns: Slots) -> Slots:
        """Who stands in these places."""
        if self.stretch is not None:
            return np.asarray(self.stretch.start + rows * len(self.codes) + columns)
        assert self.slots is not None
        return self.slots.ravel().take(rows * len(self.codes) + columns)

    def all_slots(self) -> Slots:
        """Every place's machine, (k, b)."""
        if self.stretch is not None:
            there = np.arange(self.stretch.start, self.stretch.stop, dtype=np.intp)
            return there.reshape(self.k, len(self.codes))
        assert self.slots is not None
        return self.slots

    def shape(self, column: int) -> Shape:
        """What the task of that column is."""
        return self.batch.shapes[int(self.codes[column])]

    def find(self, column: int, slots: Slots) -> tuple[Slots, Slots]:
        """Those of these slots that are in the hand of that column: their rows, and which they are
        of those given."""
        if self.stretch is not None:
            width = len(self.codes)
            at = slots - self.stretch.start
            mine = np.flatnonzero((at >= 0) & (at < self.k * width) & (at % width == column))
            return at[mine] // width, mine
        assert self.slots is not None
        own = self.slots[:, column]
        order = np.argsort(own, kind="stable")
        at = np.searchsorted(own, slots, sorter=order).clip(max=self.k - 1)
        mine = np.flatnonzero(own[order[at]] == slots)
        return order[at[mine]], mine


def one_pool(index: MachineIndex, batch: Batch, pool: Pool, first: int, **rest: Any) -> Hands:
    """Deal one pool to the tasks, from a place on: hands as large as there are machines for."""
    width = len(rest["codes"])
    k = (size(pool) - first) // width
    if isinstance(pool, slice):
        start = pool.start + first
        stretch = slice(start, start + k * width)
        return Hands(index, batch, stretch=stretch, slots=None, k=k, **rest)
    dealt = pool[first : first + k * width].reshape(k, width)
    return Hands(index, batch, stretch=None, slots=dealt, k=k, **rest)


def many_pools(
    index: MachineIndex, batch: Batch, pools: Sequence[tuple[Pool, int]], **rest: Any
) -> Hands:
    """Deal pools that have no machine in common, each to so many tasks, beside each other."""
    k = min(size(pool) // width for pool, width in pools)
    slots = np.empty((k, sum(width for _, width in pools)), dtype=np.intp)
    at = 0
    for pool, width in pools:
        slots[:, at : at + width] = slots_of(pool, 0, k * width).reshape(k, width)
        at += width
    return Hands(index, batch, stretch=None, slots=slots, k=k, **rest)


def barred(hands: Hands) -> Table:
    """Below zero in the places where the task may not go: a difference that falls below zero, or a
    bit in the place of the sign. Equals `~feasible(...)`, without a table of booleans."""
    index, room = hands.index, hands.index.room
    width = (hands.k, len(hands.codes))
    if hands.shifts is None:
        bad: Table = np.zeros(width, dtype=np.int32)
    else:
        bad = np.left_shift(hands.of(index.rules.bars), hands.shifts)
    for column, amounts in hands.asks.items():
        free = hands.of(room.free[column])
        if room.overdrawn:
            free = np.maximum(free, 0)
        np.bitwise_or(bad, free - amounts, out=bad)
    _bar_for_gpus(hands, bad)
    for column in _columns(hands, hands.batch.with_extras):
        for name, amount in hands.shape(column).resources.extra.items():
            _bar_extra(hands, bad, column, name, amount)
    concerned = hands.batch.bound if anyone_shuns(index) else hands.batch.shunning
    for column in _columns(hands, concerned):
        _bar_neighbours(hands, bad, column)
    return bad


def chosen(bad: Table, score: Scores, turn: int = 0) -> Column:
    """By column, the row of the best machine that may be taken, NO_FIT where there is none; of
    equal scores the first row from row `turn` on, around the end."""
    k = len(score)
    steps = score.astype(np.int32)
    np.bitwise_and(bad, SIGN, out=bad)
    if k <= 1 << _PACKED_BITS:
        # The row stands in the low bits, so that one maximum finds both; the first row is greatest.
        np.left_shift(steps, _PACKED_BITS, out=steps)
        turned = (np.arange(k, dtype=np.int32) - turn) % k
        np.bitwise_or(steps, (k - 1 - turned)[:, np.newaxis], out=steps)
        np.bitwise_or(steps, bad, out=steps)
        top: Column = steps.max(axis=0)
        row = (k - 1 - (top & ((1 << _PACKED_BITS) - 1)) + turn) % k
    else:
        np.bitwise_or(steps, bad, out=steps)
        row, top = _greatest(steps[turn:])
        before, there = _greatest(steps[:turn]) if turn else (row, top)
        row = np.where(there > top, before, row + turn)
        top = np.maximum(there, top)
    return np.where(top >= 0, row, np.int32(NO_FIT))


def _greatest(steps: Table) -> tuple[Column, Column]:
    """By column, the first row with the greatest number, and that number."""
    columns = steps.shape[1]
    if columns == 1:
        row = np.array([steps.ravel().argmax()], dtype=np.int32)
    else:
        row = steps.argmax(axis=0).astype(np.int32)
    top: Column = steps[row, np.arange(columns)]
    return row, top


def _columns(hands: Hands, codes: frozenset[int]) -> list[int]:
    """The columns of these shapes."""
    if not codes:
        return []
    return [column for column, code in enumerate(hands.codes.tolist()) if code in codes]


def _bar_for_gpus(hands: Hands, bad: Table) -> None:
    """Whole devices that nobody uses, or one device with enough of a share left."""
    room = hands.index.room
    whole, milli = hands.batch.ask[GPU, hands.codes], hands.batch.gpu_milli[hands.codes]
    if whole.any():
        np.bitwise_or(bad, np.maximum(hands.of(room.free[GPU]), 0) - whole, out=bad)
    if milli.any():
        np.bitwise_or(bad, hands.of(room.devices.most).astype(np.int32) - milli, out=bad)


def _bar_extra(hands: Hands, bad: Table, column: int, name: str, amount: int) -> None:
    at = hands.index.extra_column(name)
    if not amount:
        return
    if at is None:
        bad[:, column] = SIGN
        return
    free = hands.of(hands.index.room.free[at])[:, column]
    bad[:, column] |= np.where(free < amount, SIGN, np.int32(0))


def _bar_neighbours(hands: Hands, bad: Table, column: int) -> None:
    """Where somebody is whom the task shuns or who shuns it, or enough of its service."""
    shape = hands.shape(column)
    for presence, fewer_than in limits(shape.team, shape.constraints):
        there = hands.index.neighbours.by_slot(presence)
        if there:
            held = [slot for slot, count in there.items() if count >= fewer_than]
            rows, _ = hands.find(column, np.array(held, dtype=np.intp))
            bad[rows, column] = SIGN
    if shunned_over(hands.index, shape.team, shape.constraints.service or ""):
        own = hands.slot(np.arange(hands.k, dtype=np.int32), np.full(hands.k, column))
        for ruling in Domains(hands.index, may_use).kept_off(shape):
            bad[~ruling.at(own), column] = SIGN


def limits(team: str, rules: Constraints) -> list[tuple[Presence, int]]:
    """Fewer than so many of each of these may be on a machine that takes the task."""
    found = [(Presence(team, service), 1) for service in rules.anti_affinity]
    if rules.service is not None:
        found.append((Presence(team, rules.service, True), 1))
        if rules.max_per_machine is not None:
            found.append((Presence(team, rules.service), rules.max_per_machine))
    return found
