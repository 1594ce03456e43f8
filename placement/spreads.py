"""Tasks of a service over zones, racks or machines: who has how many, and whose turn it is."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from placement.demand import Batch
from placement.hands import Hands, Table
from placement.index import MachineIndex
from placement.neighbours import DomainRows, Presence
from placement.pools import ANYWHERE
from placement.room import Column

OVER = (Spread.NONE, Spread.ZONE, Spread.RACK, Spread.MACHINE)
REMEMBERED_MAX = 16_000_000
"""Numbers of all rows of a kind that an index keeps between batches, unless one needs more."""
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
        self._service: Column = np.full(len(batch.shapes), -1, dtype=np.int32)
        """By shape, its place in `_services`; -1 where there is nothing to count."""
        self._row: dict[Spread, Column] = {}
        """By shape, its service's row in the table of that kind; -1 likewise."""
        self._tables: dict[Spread, Table] = {}
        places: dict[Presence, int] = {}
        known = index.neighbours.known()
        for code in batch.spread:
            shape = batch.shapes[code]
            service = shape.counted[0]
            if code not in batch.lonely or service in known:
                self.over[code] = OVER.index(shape.constraints.spread)
                self._service[code] = places.setdefault(service, len(places))
        self._services = list(places)
        if places:
            # Tasks of the service that are not to be spread themselves are counted all the same.
            for code in batch.bound:
                self._service[code] = places.get(batch.shapes[code].counted[0], -1)
        # Now, while what the index remembers is true: a task of the service makes it forget.
        for at in np.unique(self.over).tolist():
            if OVER[at] in (Spread.ZONE, Spread.RACK):
                self._count(OVER[at])

    def remember(self) -> None:
        """Leave the counts with the index, for the next batch: they have been kept true."""
        for over in self._tables:
            rows = self._row[over]
            here = self._service >= 0
            of_service = dict(zip(self._service[here].tolist(), rows[here].tolist(), strict=True))
            kept = self._index.neighbours.rows[over].row_of
            kept.update((self._services[at], row) for at, row in of_service.items())

    def table(self, hands: Hands, over: Spread) -> Table:
        """How many of each task's service are in the zone, rack or machine of each place."""
        if over is Spread.MACHINE:
            return self._on_machines(hands)
        codes, domains = self._index.domains(over)
        first = self._row[over][hands.codes] * np.int32(domains)
        counts: Table = self._tables[over].ravel().take(hands.of(codes) + first)
        return counts

    def add(self, codes: Column, slots: Column) -> None:
        """A task of each of these shapes is there now."""
        for over, table in self._tables.items():
            rows = self._row[over][codes]
            some = np.flatnonzero(rows >= 0)
            domain, _ = self._index.domains(over)
            np.add.at(table, (rows[some], domain[slots[some]]), 1)

    def zones_in_turn(self, codes: Column, zones: Sequence[int]) -> npt.NDArray[np.int64]:
        """A zone for each task of these shapes: one after another, the service's next task into the
        zone that has fewest, of equal ones the first of `zones`. ANYWHERE for a task that is the
        only one of its service here: its zone may as well be chosen by what else is good."""
        rows = self._row[Spread.ZONE][codes]
        counts = self._tables[Spread.ZONE][:, list(zones)]
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

    def _count(self, over: Spread) -> None:
        """Add up what the index does not remember, in rows beside those that it does."""
        codes, domains = self._index.domains(over)
        kept = self._rows_for(over, domains)
        missing = [service for service in self._services if service not in kept.row_of]
        in_use = set(kept.row_of.values())
        unused = [row for row in range(len(kept.table)) if row not in in_use][: len(missing)]
        kept.table[unused] = 0
        rows: list[int] = []
        slots: list[int] = []
        counts: list[int] = []
        for service, row in zip(missing, unused, strict=True):
            kept.row_of[service] = row
            there = self._index.neighbours.by_slot(service)
            rows += [row] * len(there)
            slots += there.keys()
            counts += there.values()
        if rows:
            np.add.at(kept.table, (np.array(rows), codes[np.array(slots)]), np.array(counts))
        row_of = np.array([*map(kept.row_of.__getitem__, self._services), -1], dtype=np.int32)
        self._row[over] = row_of[self._service]
        self._tables[over] = kept.table

    def _rows_for(self, over: Spread, domains: int) -> DomainRows:
        """What the index has, with room for every service of this batch."""
        known = self._index.neighbours.rows
        kept = known.get(over)
        if kept is None or kept.table.shape[1] != domains:
            kept = DomainRows(np.zeros((0, domains), dtype=np.int32), {})
        more = sum(service not in kept.row_of for service in self._services)
        rows = len(kept.row_of) + more
        if rows > len(kept.table):
            if 2 * rows * domains > REMEMBERED_MAX:
                kept, rows = DomainRows(kept.table[:0], {}), len(self._services)
            wider = np.zeros((2 * rows, domains), dtype=np.int32)
            wider[: len(kept.table)] = kept.table
            kept = DomainRows(wider, kept.row_of)
        known[over] = kept
        return kept

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
