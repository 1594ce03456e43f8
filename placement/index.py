"""The machines as columns: what each has, has free, bears and hosts. The one mutable class here.

A cache of the ledger: it decides nothing, and every machine given to it is a state, never a change.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from domain.fleet import Fleet, MachineStanding
from domain.resources import COLUMNS
from domain.task import TaskSpec
from placement.demand import Shape, shape_of
from placement.devices import DEVICES_MAX, DeviceTable
from placement.neighbours import Counts, Neighbour, NeighbourTable, Presence
from placement.pairs import At, Mark, MarkTable, Mask

Column = npt.NDArray[np.int32]

PACKED = 3
"""The first so many columns (cpu, memory, gpu) are what packing looks at: the ones that run out."""
_GPU = COLUMNS.index("gpu")
_SLOTS_MIN = 16
_SHARED_MARKS_MAX = 10_000
_QUANTITY_MIN = -(2**31)


class MachineId(NamedTuple):
    """Names a machine of the fleet."""

    cluster: str
    name: str


class MachineIndex:
    """Columns over machine slots. A slot is kept while its machine stays, and used again after."""

    def __init__(self, machines: Iterable[MachineStanding] = ()) -> None:
        self.slots = 0
        """Slots in use or once used: the length of every question about all machines."""
        self.capacity = np.zeros((len(COLUMNS), 0), dtype=np.int32)
        self.free = np.zeros((len(COLUMNS), 0), dtype=np.int32)
        self.share = np.zeros((PACKED, 0), dtype=np.float64)
        """One over the capacity, where there is any: makes fractions of quantities."""
        self.present = np.zeros(0, dtype=np.bool_)
        self.cordoned = np.zeros(0, dtype=np.bool_)
        self.reachable = np.zeros(0, dtype=np.bool_)
        self.cluster = np.zeros(0, dtype=np.int32)
        self.zone = np.zeros(0, dtype=np.int32)
        self.rack = np.zeros(0, dtype=np.int32)
        self.devices = DeviceTable()
        """The column `gpu` counts devices that nobody uses; here each stands with what it has."""
        self.marks = MarkTable()
        self.neighbours = NeighbourTable()
        self.clusters: dict[str, int] = {}
        self.zones: dict[str, int] = {}
        self._racks: dict[tuple[str, str, str], int] = {}
        self._extras: dict[str, int] = {}
        self._slot_of: dict[MachineId, int] = {}
        self._id_of: list[MachineId] = []
        self._unused: list[int] = []
        self._by_name: npt.NDArray[np.intp] | None = None
        self._totals: dict[tuple[Presence, Spread], Counts] = {}
        self._shared_marks: dict[frozenset[Mark], frozenset[Mark]] = {}
        self._closed: frozenset[str] = frozenset()
        self.upsert(machines)

    def __len__(self) -> int:
        return len(self._slot_of)

    # --- what the ledger says ---

    def refresh(self, changes: Fleet) -> None:
        """Take over machines that changed, and which clusters may be given new work."""
        self._closed = frozenset(name for name, opened in changes.clusters.items() if not opened)
        self.upsert(changes.machines)

    def replace(self, everything: Fleet) -> None:
        """The full compare: what the fleet does not have is gone."""
        kept = {MachineId(one.cluster, one.name) for one in everything.machines}
        self.remove(self._slot_of.keys() - kept)
        self.refresh(everything)

    def upsert(self, machines: Iterable[MachineStanding]) -> None:
        """Put each state in the place of whatever was known of that machine."""
        latest = {MachineId(one.cluster, one.name): one for one in machines}
        if not latest:
            return
        states = list(latest.values())
        slots = np.array([self._slot_for(machine) for machine in latest], dtype=np.intp)
        self._put_room(states, slots)
        self.present[slots] = True
        self.cordoned[slots] = [one.cordoned for one in states]
        self.reachable[slots] = [one.reachable for one in states]
        self.cluster[slots] = [_code(self.clusters, one.cluster) for one in states]
        self.zone[slots] = [_code(self.zones, one.zone) for one in states]
        # A rack's name means something only inside its cluster and zone.
        self.rack[slots] = [
            self._racks.setdefault((one.cluster, one.zone, one.rack), len(self._racks))
            for one in states
        ]
        for slot, one in zip(slots.tolist(), states, strict=True):
            self.marks.put(slot, self._marks_of(one))
            self._put_neighbours(slot, one)
        self._totals.clear()

    def remove(self, machines: Iterable[MachineId]) -> None:
        """Forget these machines and everything on them; unknown ones are no mistake."""
        for machine in machines:
            slot = self._slot_of.pop(machine, None)
            if slot is None:
                continue
            self.present[slot] = False
            self.capacity[:, slot] = 0
            self.free[:, slot] = 0
            self.share[:, slot] = 0.0
            self.marks.put(slot, frozenset())
            self.neighbours.clear(slot)
            self.devices.clear(slot)
            self._unused.append(slot)
            self._by_name = None
        self._totals.clear()

    # --- what a round takes, and what comes back when its commit lost ---

    def claim(self, machine: MachineId, spec: TaskSpec) -> int:
        """Take room on a machine, and count the task among its neighbours: its devices, as bits."""
        return self.take(self._slot_of[machine], shape_of(spec))

    def release(self, machine: MachineId, spec: TaskSpec, devices: int | None = None) -> None:
        """Give back exactly what `claim` or a round took; a machine that has left took it along.

        Without the devices, the last ones that are taken whole come free.
        """
        slot = self._slot_of.get(machine)
        if slot is not None:
            self.give_back(slot, shape_of(spec), devices)

    def take(self, slot: int, shape: Shape) -> int:
        """`claim` for one who knows slots and shapes."""
        devices = 0
        if shape.gpu_total_milli:
            before = self.devices.wholly_free(slot)
            devices = self.devices.take(slot, shape.resources.gpu, shape.gpu_milli)
            self.free[_GPU, slot] += self.devices.wholly_free(slot) - before
        self._move(slot, shape, -1)
        if shape.neighbour is not None:
            self._count(slot, shape.neighbour, 1)
        return devices

    def give_back(self, slot: int, shape: Shape, devices: int | None = None) -> None:
        """`release` for one who knows slots and shapes."""
        if shape.gpu_total_milli:
            before = self.devices.wholly_free(slot)
            self.devices.give_back(slot, shape.resources.gpu, shape.gpu_milli, devices)
            self.free[_GPU, slot] += self.devices.wholly_free(slot) - before
        self._move(slot, shape, 1)
        if shape.neighbour is not None:
            self._count(slot, shape.neighbour, -1)

    # --- questions ---

    @property
    def everywhere(self) -> slice:
        """Every slot, as an `At`."""
        return slice(0, self.slots)

    def slot(self, machine: MachineId) -> int | None:
        """Where a machine stands in the columns."""
        return self._slot_of.get(machine)

    def may_place(self, at: At) -> Mask:
        """False where the machine, or its whole cluster, is not to be given new work."""
        reachable = self.reachable[: self.slots][at]
        if not self._closed:
            return reachable
        opened = np.array([name not in self._closed for name in self.clusters], dtype=np.bool_)
        return reachable & opened[self.cluster[: self.slots][at]]

    def machine(self, slot: int) -> MachineId:
        """Who stands there."""
        return self._id_of[slot]

    def by_name(self) -> npt.NDArray[np.intp]:
        """Every machine's slot in the order of names, whatever order they came in."""
        if self._by_name is None:
            slots = [self._slot_of[machine] for machine in sorted(self._slot_of)]
            self._by_name = np.array(slots, dtype=np.intp)
        return self._by_name

    def extra_column(self, name: str) -> int | None:
        """The column of a named resource; None when no machine has it."""
        return self._extras.get(name)

    def counts(self, presence: Presence, at: At) -> Counts:
        """How many tasks of a service (or of those that shun it) are on each machine of `at`."""
        return self.neighbours.counts(presence, at, self.slots)

    def spread_counts(self, presence: Presence, over: Spread, at: At) -> Counts:
        """How many tasks of a service are in the zone, rack or machine of each machine of `at`."""
        assert over is not Spread.NONE
        if over is Spread.MACHINE:
            return self.counts(presence, at)
        codes = self._codes(over)
        totals = self._totals.get((presence, over))
        if totals is None:
            totals = np.zeros(len(self.zones if over is Spread.ZONE else self._racks), np.int32)
            for slot, count in self.neighbours.by_slot(presence).items():
                totals[codes[slot]] += count
            self._totals[presence, over] = totals
        return totals[codes[: self.slots][at]]

    # --- inside ---

    def _codes(self, over: Spread) -> Column:
        return self.zone if over is Spread.ZONE else self.rack

    def _move(self, slot: int, shape: Shape, sign: int) -> None:
        asked = [(c, n) for c, n in enumerate(shape.resources.vector()) if n and c != _GPU]
        asked += [(self._extras[name], n) for name, n in shape.resources.extra.items() if n]
        for column, amount in asked:
            after = int(self.free[column, slot]) + sign * amount
            assert _QUANTITY_MIN <= after <= self.capacity[column, slot], (column, slot, after)
            self.free[column, slot] = after

    def _count(self, slot: int, neighbour: Neighbour, count: int) -> None:
        for presence in neighbour.presences():
            self.neighbours.add(slot, presence, count)
            for over in (Spread.ZONE, Spread.RACK):
                totals = self._totals.get((presence, over))
                if totals is not None:
                    totals[self._codes(over)[slot]] += count

    def _slot_for(self, machine: MachineId) -> int:
        slot = self._slot_of.get(machine)
        if slot is not None:
            return slot
        self._by_name = None
        if self._unused:
            slot = self._unused.pop()
            self._id_of[slot] = machine
        else:
            slot = self.slots
            self.slots += 1
            self._id_of.append(machine)
            if self.slots > len(self.present):
                self._grow(max(_SLOTS_MIN, 2 * len(self.present)))
        self._slot_of[machine] = slot
        return slot

    def _grow(self, slots: int) -> None:
        for name in ("capacity", "free", "share"):
            wide = getattr(self, name)
            wider = np.zeros((len(wide), slots), dtype=wide.dtype)
            wider[:, : wide.shape[1]] = wide
            setattr(self, name, wider)
        for name in ("present", "cordoned", "reachable", "cluster", "zone", "rack"):
            long = getattr(self, name)
            longer = np.zeros(slots, dtype=long.dtype)
            longer[: len(long)] = long
            setattr(self, name, longer)
        self.marks.grow(slots)
        self.devices.grow(slots)

    def _put_room(self, states: Sequence[MachineStanding], slots: npt.NDArray[np.intp]) -> None:
        self._intern_extras(states)
        standard = len(COLUMNS)
        capacity = np.zeros((len(self.capacity), len(states)), dtype=np.int64)
        used = np.zeros_like(capacity)
        capacity[:standard] = np.array([one.capacity for one in states]).T
        used[:standard] = np.array([one.used for one in states]).T
        for at, one in enumerate(states):
            for name, amount in one.capacity_extra.items():
                capacity[self._extras[name], at] = amount
            for name, amount in one.used_extra.items():
                used[self._extras[name], at] = amount
        # What is beyond the devices that can be told apart is not offered.
        capacity[_GPU] = np.minimum(capacity[_GPU], DEVICES_MAX)
        self.devices.put_counts(slots, capacity[_GPU], used[_GPU])
        for at, one in enumerate(states):
            if one.gpu_free_milli is not None:
                self.devices.put_shares(int(slots[at]), one.gpu_free_milli)
                free = self.devices.wholly_free(int(slots[at]))
                used[_GPU, at] = capacity[_GPU, at] - free
        self.capacity[:, slots] = capacity
        self.free[:, slots] = capacity - used
        packed = capacity[:PACKED].astype(np.float64)
        self.share[:, slots] = np.divide(1.0, packed, out=np.zeros_like(packed), where=packed > 0)

    def _put_neighbours(self, slot: int, one: MachineStanding) -> None:
        self.neighbours.clear(slot)
        for beside in one.beside:
            neighbour = Neighbour(beside.team, beside.service, beside.shuns)
            for presence in neighbour.presences():
                self.neighbours.add(slot, presence, beside.count)

    def _intern_extras(self, states: Sequence[MachineStanding]) -> None:
        named = {name for one in states for name in (*one.capacity_extra, *one.used_extra)}
        for name in sorted(named - self._extras.keys()):
            self._extras[name] = len(self.capacity)
            self.capacity = np.vstack([self.capacity, np.zeros_like(self.capacity[:1])])
            self.free = np.vstack([self.free, np.zeros_like(self.free[:1])])

    def _marks_of(self, one: MachineStanding) -> frozenset[Mark]:
        marks = frozenset(
            [Mark("label", key, value) for key, value in one.labels.items()]
            + [Mark("has", key, "") for key in one.labels]
            + [Mark("taint", taint.key, taint.value) for taint in one.taints]
        )
        # Machines of one class share one set; a label that keeps changing must not fill memory.
        if len(self._shared_marks) > _SHARED_MARKS_MAX:
            self._shared_marks.clear()
        return self._shared_marks.setdefault(marks, marks)

    def bears_any(self, marks: Iterable[Mark], at: At) -> Mask:
        """True where a machine bears at least one of these labels or taints."""
        return self.marks.any_of(marks, at, self.slots)


def _code(codes: dict[str, int], name: str) -> int:
    return codes.setdefault(name, len(codes))
