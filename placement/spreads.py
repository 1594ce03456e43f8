"""Tasks of a service over zones, racks or machines: who has how many, and whose turn it is."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from placement.demand import Shape
from placement.hands import Hands, Table
from placement.index import MachineIndex
from placement.neighbours import Counts, Presence


def service_of(shape: Shape) -> Presence:
    """What is counted of a task that is to be spread."""
    assert shape.constraints.service is not None
    return Presence(shape.team, shape.constraints.service)


class SpreadCounts:
    """The counts of one batch, kept true while it assigns."""

    def __init__(self, index: MachineIndex) -> None:
        self._index = index
        self._totals: dict[tuple[Presence, Spread], Counts] = {}

    def totals(self, service: Presence, over: Spread) -> Counts:
        """How many of the service are in each zone or rack, by code."""
        there = self._totals.get((service, over))
        if there is None:
            there = self._index.domain_counts(service, over)
            self._totals[service, over] = there
        return there

    def add(self, shape: Shape, slot: int) -> None:
        """One more of its service is there."""
        if shape.constraints.service is None:
            return
        service = service_of(shape)
        for over in (Spread.ZONE, Spread.RACK):
            there = self._totals.get((service, over))
            if there is not None:
                codes, _ = self._index.domains(over)
                there[codes[slot]] += 1

    def table(self, hands: Hands, over: Spread) -> Table:
        """How many of each task's service are in the zone, rack or machine of each place."""
        if over is Spread.MACHINE:
            return self._on_machines(hands)
        rows: dict[Presence, int] = {}
        row = [
            rows.setdefault(service_of(hands.shape(column)), len(rows))
            for column in range(len(hands.codes))
        ]
        codes, domains = self._index.domains(over)
        totals = np.stack([self.totals(service, over) for service in rows])
        at = np.array(row, dtype=np.int32) * np.int32(domains)
        counts: Table = totals.ravel().take(hands.of(codes) + at)
        return counts

    def _on_machines(self, hands: Hands) -> Table:
        counts = np.zeros((hands.k, len(hands.codes)), dtype=np.int32)
        for column in range(len(hands.codes)):
            there = self._index.neighbours.by_slot(service_of(hands.shape(column)))
            if there:
                slots = np.fromiter(there, dtype=np.intp, count=len(there))
                numbers = np.fromiter(there.values(), dtype=np.int32, count=len(there))
                rows, mine = hands.find(column, slots)
                counts[rows, column] = numbers[mine]
        return counts


def in_turn(counts: Counts, zones: Sequence[int], tasks: int) -> npt.NDArray[np.intp]:
    """The zones of so many tasks, one after another into the zone that has fewest; of equal ones
    into the first of `zones`."""
    there = counts[list(zones)]
    fewest = int(there.min())
    # A zone with c tasks has its next places at the levels c, c + 1, ...: the lowest come first.
    levels = np.arange(fewest, fewest + tasks)[:, np.newaxis]
    _, zone = np.nonzero(levels >= there)
    return np.asarray(zones, dtype=np.intp)[zone[:tasks]]
