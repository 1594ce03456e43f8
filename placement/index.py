"""The machines as columns: what each has, has free, bears and hosts. The one mutable class here.

A cache of the ledger: it decides nothing, and every machine given to it is a state, never a change.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from domain.constraint import Spread
from domain.fleet import Fleet, MachineColumns, MachineStanding
from domain.resources import COLUMNS
from domain.task import TaskSpec
from placement.demand import Batch, Shape, shape_of
from placement.domains import KindTable
from placement.mix import Demand
from placement.names import NameTable
from placement.neighbours import Counts, NeighbourTable, Presence
from placement.pairs import At, Mark, MarkTable, Mask
from placement.pools import PoolTable
from placement.room import GPU, Column, RoomTable, Slots
from placement.rows import coded, columns_of, dealt_order
from placement.rules import RuleTable

_SLOTS_MIN = 16
_FULL_MAX = 100_000
"""Shapes remembered as fitting nowhere."""
_NARROW = ("present", "cordoned", "reachable", "cluster", "zone", "rack")


class MachineId(NamedTuple):
    """Names a machine of the fleet."""

    cluster: str
    name: str


class MachineIndex:
    """Columns over machine slots. A slot is kept while its machine stays, and used again after."""

    def __init__(self, machines: Iterable[MachineStanding] = ()) -> None:
        self.demand = Demand()
        """What has been placed lately: kept when the index is laid out anew."""
        self.beyond: MachineIndex | None = None
        """The rest of the fleet, where rules over domains look at it while it is placed apart."""
        self._empty()
        self.upsert(machines)

    def _empty(self) -> None:
        self.names = NameTable()
        self.room = RoomTable()
        self.present = np.zeros(0, dtype=np.bool_)
        self.cordoned = np.zeros(0, dtype=np.bool_)
        self.reachable = np.zeros(0, dtype=np.bool_)
        self.cluster: Column = np.zeros(0, dtype=np.int32)
        self.zone: Column = np.zeros(0, dtype=np.int32)
        self.rack: Column = np.zeros(0, dtype=np.int32)
        self.marks = MarkTable()
        self.neighbours = NeighbourTable()
        self.rules = RuleTable()
        self.pools = PoolTable()
        self.kinds = KindTable()
        self.clusters: dict[str, int] = {}
        self.zones: dict[str, int] = {}
        self.layout = 0
        """Another number whenever a machine has come, left, or changed its zone or its kind."""
        self.full: tuple[dict[Shape, None], dict[Shape, None]] = ({}, {})
        """Shapes that fit no machine without GPUs, and none with them; kept until some machine has
        more room than it had, or a rule says otherwise."""
        self._racks: dict[tuple[int, int, str], int] = {}
        self._closed: frozenset[str] = frozenset()
        self._untidy = False
        """Some machine stands where an index that is loaded anew would not put it."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def slots(self) -> int:
        """Slots in use or once used: the length of every question about all machines."""
        return self.names.slots

    # --- what the ledger says ---

    def refresh(self, changes: Fleet) -> None:
        """Take over machines that changed, and which clusters may be given new work."""
        self.open_clusters(changes.clusters)
        self.upsert(changes.machines)

    def replace(self, everything: Fleet) -> None:
        """The full compare: what the fleet does not have is gone."""
        self.keep_only({(one.cluster, one.name) for one in everything.machines})
        self.refresh(everything)

    def open_clusters(self, usable: Mapping[str, bool]) -> None:
        """Every cluster: True while it may be given new work."""
        closed = frozenset(name for name, opened in usable.items() if not opened)
        if closed != self._closed:
            self._closed = closed
            self._settled_anew()

    def keep_only(self, kept: Collection[tuple[str, str]]) -> None:
        """Forget the machines not named, by cluster and name. An index whose machines have come and
        gone is laid out anew, so that the past of its slots decides nothing."""
        if self._untidy:
            self._empty()
        self.remove([MachineId(*gone) for gone in self.names.others(kept)])

    def upsert(self, machines: Iterable[MachineStanding]) -> None:
        """Put each state in the place of whatever was known of that machine."""
        latest = {(one.cluster, one.name): one for one in machines}
        if latest:
            self.upsert_columns(columns_of(list(latest.values())))

    def upsert_columns(self, columns: MachineColumns) -> None:
        """`upsert` of many machines, no two of them the same."""
        fresh_layout = not len(self.names)
        slots = self._lay_out(columns) if fresh_layout else self._slots_for(columns)
        fresh = ~self.present[slots]
        self.present[slots] = True
        had_gpu = self.room.capacity[GPU, slots] > 0
        grown = self.room.put_columns(columns, slots)
        if ((self.room.capacity[GPU, slots] > 0) != had_gpu).any():
            self._untidy = True
            self.layout += 1
        settled = fresh | self._put_place(columns, slots) | self.marks.put_columns(columns, slots)
        moved = self.neighbours.put_columns(columns, slots)
        if settled.any():
            self.rules.refresh(self, slots[settled])
            self.neighbours.rows.clear()
        if grown or moved or settled.any():
            self._forget_full()
        if fresh_layout:
            self._untidy = False

    def remove(self, machines: Iterable[MachineId]) -> None:
        """Forget these machines and everything on them; unknown ones are no mistake."""
        gone = self.names.remove(machines)
        for slot in gone:
            self.present[slot] = False
            self.room.clear(slot)
            self.marks.put(slot, frozenset())
            self.neighbours.clear(slot)
        if gone:
            self.rules.refresh(self, np.array(gone, dtype=np.intp))
            self._untidy = True
            self.layout += 1

    def put_used(self, slots: Slots, used: Column, reachable: Mask) -> None:
        """Heartbeats as columns: what is in use of the standard resources but GPUs (int32 of shape
        (columns, slots), the row of GPUs ignored), and who answers. No machine twice."""
        grown = self.room.put_used(slots, used)
        turned = slots[self.reachable[slots] != reachable]
        if len(turned):
            self.reachable[slots] = reachable
            self.rules.refresh(self, turned)
        if grown or len(turned):
            self._forget_full()

    # --- what a round takes, and what comes back when its commit lost ---

    def claim(self, machine: MachineId, spec: TaskSpec) -> int:
        """Take room on a machine, and count the task among its neighbours: its devices, as bits."""
        slot = self.names.slot(*machine)
        assert slot is not None, machine
        return self.take(slot, shape_of(spec))

    def release(self, machine: MachineId, spec: TaskSpec, devices: int | None = None) -> None:
        """Give back exactly what `claim` or a round took; a machine that has left took it along.

        Without the devices, the last ones that are taken whole come free.
        """
        slot = self.names.slot(*machine)
        if slot is not None:
            self.give_back(slot, shape_of(spec), devices)

    def take(self, slot: int, shape: Shape, devices: int | None = None) -> int:
        """`claim` for one who knows slots and shapes; `devices` where they are chosen already."""
        at = np.array([slot], dtype=np.intp)
        self.room.take(at, self._amounts(shape))
        if shape.gpu_total_milli:
            devices = self._take_devices(slot, shape, devices)
        self.room.derive(at)
        self._count(slot, shape, 1)
        return devices or 0

    def take_many(self, slots: Slots, batch: Batch, codes: Column) -> None:
        """`take` of shapes without GPUs or named resources, on slots that differ."""
        self.room.take(slots, batch.ask.take(codes, axis=1))
        self.room.derive(slots)
        bound = np.flatnonzero(batch.counts[codes])
        if len(bound):
            shapes = [batch.shapes[code] for code in codes[bound].tolist()]
            self.neighbours.add_one_each(slots[bound].tolist(), [s.counted for s in shapes])

    def give_back(self, slot: int, shape: Shape, devices: int | None = None) -> None:
        """`release` for one who knows slots and shapes."""
        at = np.array([slot], dtype=np.intp)
        self.room.give_back(at, self._amounts(shape))
        if shape.gpu_total_milli:
            before = self.room.devices.wholly_free(slot)
            self.room.devices.give_back(slot, shape.resources.gpu, shape.gpu_milli, devices)
            self.room.free[GPU, slot] += self.room.devices.wholly_free(slot) - before
        self.room.derive(at)
        self._count(slot, shape, -1)
        self._forget_full()

    # --- questions ---

    @property
    def everywhere(self) -> slice:
        """Every slot, as an `At`."""
        return slice(0, self.slots)

    @property
    def free(self) -> Column:
        """What is free, a row per resource."""
        return self.room.free

    def slot(self, machine: MachineId) -> int | None:
        """Where a machine stands in the columns."""
        return self.names.slot(*machine)

    def machine(self, slot: int) -> MachineId:
        """Who stands there."""
        return MachineId(*self.names.machine(slot))

    def may_place(self, at: At) -> Mask:
        """False where the machine, or its whole cluster, is not to be given new work."""
        reachable = self.reachable[: self.slots][at]
        if not self._closed:
            return reachable
        opened = np.array([name not in self._closed for name in self.clusters], dtype=np.bool_)
        return reachable & opened[self.cluster[: self.slots][at]]

    def extra_column(self, name: str) -> int | None:
        """The column of a named resource; None when no machine has it."""
        return self.room.extra_column(name)

    def bears_any(self, marks: Iterable[Mark], at: At) -> Mask:
        """True where a machine bears at least one of these labels or taints."""
        return self.marks.any_of(marks, at, self.slots)

    def counts(self, presence: Presence, at: At) -> Counts:
        """How many tasks of a service (or of those that shun it) are on each machine of `at`."""
        return self.neighbours.counts(presence, at, self.slots)

    def racks(self) -> list[tuple[str, str, str]]:
        """By code, cluster, zone and name; only ever added to."""
        clusters, zones = list(self.clusters), list(self.zones)
        return [(clusters[cluster], zones[zone], name) for cluster, zone, name in self._racks]

    def domains(self, over: Spread) -> tuple[Column, int]:
        """Each slot's zone or rack as a code, and how many codes there are."""
        if over is Spread.ZONE:
            return self.zone, len(self.zones)
        return self.rack, len(self._racks)

    def domain_counts(self, presence: Presence, over: Spread) -> Counts:
        """How many tasks of a service are in each zone or rack, by code."""
        codes, domains = self.domains(over)
        there = self.neighbours.by_slot(presence)
        slots = np.fromiter(there, dtype=np.intp, count=len(there))
        counts = np.fromiter(there.values(), dtype=np.int32, count=len(there))
        totals = np.bincount(codes[slots], weights=counts, minlength=domains)
        return totals.astype(np.int32)

    def spread_counts(self, presence: Presence, over: Spread, at: At) -> Counts:
        """How many tasks of a service are in the zone, rack or machine of each machine of `at`."""
        assert over is not Spread.NONE
        if over is Spread.MACHINE:
            return self.counts(presence, at)
        codes, _ = self.domains(over)
        return self.domain_counts(presence, over)[codes[: self.slots][at]]

    def column_bytes(self) -> int:
        """The size of all columns in bytes; names, and what only few machines have, apart."""
        columns = [getattr(self, name) for name in _NARROW] + [self.rules.bars]
        return int(sum(c.nbytes for c in columns) + self.room.nbytes + self.marks.nbytes)

    def remember_full(self, shapes: Iterable[Shape], *, with_gpu: bool) -> None:
        """These fit no machine with GPUs (or none without) as things stand."""
        full = self.full[with_gpu]
        if len(full) > _FULL_MAX:
            full.clear()
        full.update(dict.fromkeys(shapes))

    # --- inside ---

    def _amounts(self, shape: Shape) -> Column:
        """As a column; devices apart."""
        amounts = np.zeros((len(self.room.capacity), 1), dtype=np.int32)
        amounts[: len(COLUMNS), 0] = shape.resources.vector()
        amounts[GPU] = 0
        for name, amount in shape.resources.extra.items():
            if amount:
                column = self.room.extra_column(name)
                assert column is not None, name
                amounts[column] = amount
        return amounts

    def _take_devices(self, slot: int, shape: Shape, chosen: int | None) -> int:
        devices = self.room.devices
        before = devices.wholly_free(slot)
        taken = devices.take(slot, shape.resources.gpu, shape.gpu_milli, chosen)
        self.room.free[GPU, slot] += devices.wholly_free(slot) - before
        return taken

    def _count(self, slot: int, shape: Shape, count: int) -> None:
        for presence in shape.counted:
            self.neighbours.add(slot, presence, count)

    def _forget_full(self) -> None:
        for full in self.full:
            full.clear()

    def _settled_anew(self) -> None:
        self.rules.forget()
        self._forget_full()

    def _lay_out(self, columns: MachineColumns) -> Slots:
        """An empty index gives slots in an order that suits dealing."""
        slots = self.names.lay_out(columns.cluster, columns.name, dealt_order(columns))
        self.layout += 1
        self._grow(max(_SLOTS_MIN, self.slots, len(self.present)))
        return slots

    def _slots_for(self, columns: MachineColumns) -> Slots:
        before = len(self.names)
        slots = self.names.place(columns.cluster, columns.name)
        if len(self.names) > before:
            if self.slots > len(self.present):
                self._grow(max(_SLOTS_MIN, self.slots, 2 * len(self.present)))
            self._untidy = True
            self.layout += 1
        return slots

    def _grow(self, slots: int) -> None:
        for name in _NARROW:
            long = getattr(self, name)
            longer = np.zeros(slots, dtype=long.dtype)
            longer[: len(long)] = long
            setattr(self, name, longer)
        for table in (self.room, self.marks, self.rules):
            table.grow(slots)

    def _put_place(self, columns: MachineColumns, slots: Slots) -> Mask:
        """Where the machines are; True for those of which rules must be asked again."""
        cluster = coded(columns.cluster, self.clusters)
        zone = coded(columns.zone, self.zones)
        # A rack's name means something only inside its cluster and zone.
        racks: dict[str, int] = {}
        rack = coded(columns.rack, racks)
        names = list(racks)
        together = (cluster.astype(np.int64) * len(self.zones) + zone) * len(names) + rack
        distinct, which = np.unique(together, return_inverse=True)
        codes = []
        for one in distinct.tolist():
            place, named = divmod(one, len(names))
            key = (*divmod(place, len(self.zones)), names[named])
            codes.append(self._racks.setdefault(key, len(self._racks)))
        moved = self.zone[slots] != zone
        if moved.any():
            self._untidy = True
            self.layout += 1
        changed: Mask = moved | (self.cluster[slots] != cluster)
        self.cluster[slots], self.zone[slots] = cluster, zone
        self.rack[slots] = np.array(codes, dtype=np.int32)[which]
        for column, told in (
            (self.cordoned, np.array(columns.cordoned, dtype=np.bool_)),
            (self.reachable, np.array(columns.reachable, dtype=np.bool_)),
        ):
            changed |= column[slots] != told
            column[slots] = told
        return changed
