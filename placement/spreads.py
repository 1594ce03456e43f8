"""Tasks of a service over zones, racks or machines: who has how many, and whose turn it is."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from placement.demand import Batch
from placement.hands import Hands, Table
from placement.index import MachineIndex
from placement.neighbours import Presence
from placement.pools import ANYWHERE
from placement.room import Column

OVER = (Spread.NONE, Spread.ZONE, Spread.RACK, Spread.MACHINE)
REMEMBERED_MAX = 16_000_000
"""Numbers of all rows that an index keeps between batches."""
_IN_TURN_TOGETHER_MAX = 32
"""Services with more tasks than this in a batch are given their zones one service at a time."""


class SpreadCounts:
    """The counts of one batch, kept true while it assigns: a row per service, a column per zone or
    rack."""

    def __init__(self, index: MachineIndex, batch: Batch) -> None:
        self._index = index
        self._batch = batch
        self.over = np.zeros(len(batch.shapes), dtype=np.int8)
        """By shape, its place in OVER: over what its tasks are to be spread. A task that is the
        only one of its service in the fleet and in the batch has nobody to keep away from."""
        self._row: Column = np.full(len(batch.shapes), -1, dtype=np.int32)
        """By shape, its service's row."""
        self._tables: dict[Spread, Table] = {}
        rows: dict[Presence, int] = {}
        known = index.neighbours.known()
        for code in batch.spread:
            shape = batch.shapes[code]
            service = shape.counted[0]
            if code not in batch.lonely or service in known:
                self.over[code] = OVER.index(shape.constraints.spread)
                self._row[code] = rows.setdefault(service, len(rows))
        self._services = list(rows)
        if rows:
            # Tasks of the service that are not to be spread themselves are counted all the same.
            for code in batch.bound:
                self._row[code] = rows.get(batch.shapes[code].counted[0], -1)

    def remember(self) -> None:
        """Leave the counts with the index, for the next batch."""
        known = self._index.neighbours.rows
        for over, table in self._tables.items():
            if table.size + sum(row.size for row in known.values()) > REMEMBERED_MAX:
                known.clear()
            rows = table.copy()
            known.update(((s, over), rows[at]) for at, s in enumerate(self._services))

    def table(self, hands: Hands, over: Spread) -> Table:
        """How many of each task's service are in the zone, rack or machine of each place."""
        if over is Spread.MACHINE:
            return self._on_machines(hands)
        codes, domains = self._index.domains(over)
        first = self._row[hands.codes] * np.int32(domains)
        counts: Table = self._table(over).ravel().take(hands.of(codes) + first)
        return counts

    def add(self, codes: Column, slots: Column) -> None:
        """A task of each of these shapes is there now."""
        for over, table in self._tables.items():
            rows = self._row[codes]
            some = np.flatnonzero(rows >= 0)
            domain, _ = self._index.domains(over)
            np.add.at(table, (rows[some], domain[slots[some]]), 1)

    def zones_in_turn(self, codes: Column, zones: Sequence[int]) -> npt.NDArray[np.int64]:
        """A zone for each task of these shapes: one after another, the service's next task into the
        zone that has fewest, of equal ones the first of `zones`. ANYWHERE for a task that is the
        only one of its service here: its zone may as well be chosen by what else is good."""
        rows = self._row[codes]
        counts = self._table(Spread.ZONE)[:, list(zones)]
        given = np.full(len(codes), ANYWHERE, dtype=np.int64)
        order = np.argsort(rows, kind="stable")
        starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
        lengths = np.diff(starts, append=len(order))
        names = np.array(zones, dtype=np.int64)
        few = (lengths > 1) & (lengths <= _IN_TURN_TOGETHER_MAX)
        for number in range(int(lengths[few].max(initial=0))):
            at = order[starts[few & (lengths > number)] + number]
            least = counts[rows[at]].argmin(axis=1)
            counts[rows[at], least] += 1
            given[at] = names[least]
        for many in np.flatnonzero(lengths > _IN_TURN_TOGETHER_MAX).tolist():
            mine = order[starts[many] : starts[many] + lengths[many]]
            given[mine] = names[in_turn(counts[rows[mine[0]]], len(mine))]
        return given

    def _table(self, over: Spread) -> Table:
        table = self._tables.get(over)
        if table is None:
            codes, domains = self._index.domains(over)
            table = np.zeros((len(self._services), domains), dtype=np.int32)
            known = self._index.neighbours.rows
            rows: list[int] = []
            slots: list[int] = []
            counts: list[int] = []
            for row, service in enumerate(self._services):
                row_there = known.get((service, over))
                if row_there is not None and len(row_there) == domains:
                    table[row] = row_there
                    continue
                there = self._index.neighbours.by_slot(service)
                rows += [row] * len(there)
                slots += there.keys()
                counts += there.values()
            if rows:
                np.add.at(table, (np.array(rows), codes[np.array(slots)]), np.array(counts))
            self._tables[over] = table
        return table

    def _on_machines(self, hands: Hands) -> Table:
        counts = np.zeros((hands.k, len(hands.codes)), dtype=np.int32)
        for column in range(len(hands.codes)):
            there = self._index.neighbours.by_slot(hands.shape(column).counted[0])
            if there:
                slots = np.fromiter(there, dtype=np.intp, count=len(there))
                numbers = np.fromiter(there.values(), dtype=np.int32, count=len(there))
                rows, mine = hands.find(column, slots)
                counts[rows, column] = numbers[mine]
        return counts


def in_turn(counts: Column, tasks: int) -> npt.NDArray[np.intp]:
    """The columns of so many tasks, one after another where the count is least; of equal ones the
    first."""
    fewest = int(counts.min())
    # Where c are there already, the next places are at the levels c, c + 1, ...: the lowest first.
    levels = np.arange(fewest, fewest + tasks)[:, np.newaxis]
    _, column = np.nonzero(levels >= counts)
    return np.asarray(column[:tasks], dtype=np.intp)
