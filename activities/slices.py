"""The machines as one partition sees them: its own slice first, then everybody else's.

With several partitions each has a slice of the machines that it looks at first, a fair sample of
every cluster, zone and class. So two of them want the same room only when the slice of one of them
has run out of it. Nothing is forbidden: the ledger decides, and whoever loses waits.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

from domain.fleet import MachineColumns, PendingTask
from domain.task import TaskSpec
from domain.verdict import Verdict
from placement.index import MachineId, MachineIndex
from placement.policy import DEFAULT_POLICY
from placement.round import RoundResult, place
from store.columns import FleetColumns

T = TypeVar("T")


class FleetSlices:
    """One index with every machine; of several partitions, one index for each side of the slice."""

    def __init__(self, partition: int = 0, partitions: int = 1) -> None:
        assert partition >= 0, partition
        self._partition, self._partitions = partition, partitions
        self._mine = MachineIndex()
        self._others = MachineIndex() if partitions > 1 else None
        if self._others is not None:
            self._others.demand = self._mine.demand
            # Racks and zones go through both sides: rules over them count what is on either.
            self._mine.beyond, self._others.beyond = self._others, self._mine

    def replace(self, everything: FleetColumns) -> None:
        """The full compare: what the fleet does not have is gone."""
        for index, machines in self._parts(everything.machines):
            index.keep_only(set(zip(machines.cluster, machines.name, strict=True)))
        self.refresh(everything)

    def refresh(self, changes: FleetColumns) -> None:
        """Take over machines that changed, and which clusters may be given new work."""
        for index, machines in self._parts(changes.machines):
            index.open_clusters(changes.clusters)
            if machines.name:
                index.upsert_columns(machines)

    def place(
        self,
        tasks: Sequence[PendingTask],
        seed: int,
        cooling: Mapping[str, frozenset[str]],
    ) -> RoundResult:
        """Place what fits and take its room; equal inputs and seed give equal results."""
        result = place(self._mine, tasks, DEFAULT_POLICY, seed, cooling=cooling)
        if self._others is None or not result.verdicts:
            return result
        left = [task for task in tasks if task.key in result.verdicts]
        further = place(self._others, left, DEFAULT_POLICY, seed, cooling=cooling)
        verdicts = {
            key: _together(result.verdicts[key], verdict)
            for key, verdict in further.verdicts.items()
        }
        return RoundResult(result.placed + further.placed, verdicts)

    def release(self, cluster: str, machine: str, spec: TaskSpec) -> None:
        """Give back what `place` took; a machine that has left took it along."""
        self.index_of(machine).release(MachineId(cluster, machine), spec)

    def index_of(self, machine: str) -> MachineIndex:
        """The index that has the machines of this name."""
        return self._mine if self._others is None or self._is_mine(machine) else self._others

    def _parts(self, machines: MachineColumns) -> list[tuple[MachineIndex, MachineColumns]]:
        """Each index with the machines that are for it."""
        if self._others is None:
            return [(self._mine, machines)]
        mine: list[int] = []
        others: list[int] = []
        for at, name in enumerate(machines.name):
            (mine if self._is_mine(name) else others).append(at)
        return [(self._mine, _rows(machines, mine)), (self._others, _rows(machines, others))]

    def _is_mine(self, machine: str) -> bool:
        return zlib.crc32(machine.encode()) % self._partitions == self._partition


def _rows(columns: MachineColumns, chosen: list[int]) -> MachineColumns:
    """Some of the machines, in this order."""
    places = {at: place for place, at in enumerate(chosen)}

    def some(column: Sequence[T]) -> list[T]:
        return [column[at] for at in chosen]

    def few(column: Mapping[int, T]) -> dict[int, T]:
        return {places[at]: value for at, value in column.items() if at in places}

    return MachineColumns(
        cluster=some(columns.cluster),
        name=some(columns.name),
        zone=some(columns.zone),
        rack=some(columns.rack),
        marking=some(columns.marking),
        markings=columns.markings,
        capacity=[some(column) for column in columns.capacity],
        used=[some(column) for column in columns.used],
        cordoned=some(columns.cordoned),
        reachable=some(columns.reachable),
        extras=few(columns.extras),
        beside=few(columns.beside),
        gpu_free_milli=few(columns.gpu_free_milli),
    )


def _together(mine: Verdict, others: Verdict) -> Verdict:
    """What two disjoint sets of machines say of one task."""
    if not others.machines:
        return mine
    if not mine.machines:
        return others
    lost = dict(mine.lost)
    for reason, machines in others.lost.items():
        lost[reason] = lost.get(reason, 0) + machines
    foremost = max(mine.reason, others.reason, key=lambda reason: lost.get(reason, 0))
    details = dict.fromkeys(one.detail for one in (mine, others) if one.reason == foremost)
    return Verdict(
        reason=foremost,
        machines=mine.machines + others.machines,
        lost=dict(sorted(lost.items(), key=lambda item: -item[1])),
        detail="; ".join(filter(None, details)),
    )
