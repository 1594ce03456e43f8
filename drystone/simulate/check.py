"""Was every placement lawful? An independent check of a placements file, in plain Python.

Shares no code with the engine: it goes through the lines in the order of time, keeps its own books
per machine and per device, and matches every rule anew. Knows nothing of how placements are found.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from drystone.simulate.check_rules import Begin, Neighbours, label_met, labels_of
from drystone.simulate.records import (
    DEVICE_MILLI,
    NO_RULES,
    Demand,
    MachineRow,
    Outcome,
    Placement,
    TaskRow,
)

VIOLATIONS_MAX = 1_000
"""More than that are counted and not described."""
_ENDS, _BRIEF, _BEGINS = range(3)
"""What comes first of what happens at one moment."""
PLACED = (Outcome.RUNNING, Outcome.SUCCEEDED, Outcome.PREEMPTED)


@dataclass(slots=True)
class Checked:
    """What was found."""

    placements: int = 0
    violations: int = 0
    described: list[str] = field(default_factory=list)

    def wrong(self, what: str) -> None:
        """One more."""
        self.violations += 1
        if len(self.described) < VIOLATIONS_MAX:
            self.described.append(what)


class _Books:
    """What is on one machine now."""

    def __init__(self, machine: MachineRow) -> None:
        self.machine = machine
        self.used = {name: getattr(machine.reserved, name) for name in COUNTED}
        self.device_milli = [0] * machine.capacity.gpu
        self.services: Counter[tuple[str, str]] = Counter()


COUNTED = ("cpu_milli", "memory_mib", "disk_mib", "net_mbps")


def check(
    machines: Sequence[MachineRow], tasks: Sequence[TaskRow], placements: Iterable[Placement]
) -> Checked:
    """Capacity of each machine and device at every moment, rules, caps, times, one line per task,
    and at the end nothing left out that a machine has room for."""
    found = Checked()
    books = {one.id: _Books(one) for one in machines}
    task_of = {row.id: row for row in tasks}
    lines = list(placements)
    _check_lines(found, task_of, lines)
    events = []
    for number, line in enumerate(lines):
        row = task_of.get(line.task_id)
        if row is None or line.outcome not in PLACED:
            continue
        found.placements += 1
        if line.machine_id not in books:
            found.wrong(f"{line.task_id}: no machine is called {line.machine_id!r}")
            continue
        assert line.placed_ms is not None
        _check_rules(found, row.demand, books[line.machine_id].machine, line)
        # What ends at a moment makes room for what begins at it; a task of no length does both.
        brief = line.ended_ms == line.placed_ms
        events.append((line.placed_ms, _BRIEF if brief else _BEGINS, number, 1))
        if line.ended_ms is not None:
            events.append((line.ended_ms, _BRIEF if brief else _ENDS, number, -1))
    events.sort(key=lambda event: (*event[:3], -event[3]))
    for _, _, number, sign in events:
        line = lines[number]
        _move(found, books[line.machine_id], task_of[line.task_id].demand, line, sign)
    neighbours = Neighbours(machines, lambda demand, one: not _unasked(demand, one))
    _check_neighbours(found, neighbours, task_of, lines, events)
    _check_left_out(found, list(books.values()), task_of, lines, neighbours)
    return found


def _check_neighbours(
    found: Checked,
    neighbours: Neighbours,
    task_of: dict[str, TaskRow],
    lines: Sequence[Placement],
    events: Sequence[tuple[int, int, int, int]],
) -> None:
    """Rules between tasks, moment by moment: of one moment, tasks may have begun in any order."""
    if not any(row.demand.rules != NO_RULES for row in task_of.values()):
        return
    for (_, kind), group in groupby(events, key=lambda event: event[:2]):
        moves = [(_begin(lines[number], task_of), sign) for _, _, number, sign in group]
        if kind == _BEGINS:
            for what in neighbours.begin([one for one, _ in moves]):
                found.wrong(what)
            continue
        for one, sign in moves:
            if sign > 0:
                for what in neighbours.begin([one]):
                    found.wrong(what)
            else:
                neighbours.move(one, -1)


def _begin(line: Placement, task_of: dict[str, TaskRow]) -> Begin:
    return Begin(line.task_id, line.machine_id, task_of[line.task_id].demand)


def _check_lines(found: Checked, task_of: dict[str, TaskRow], lines: Sequence[Placement]) -> None:
    """Every task once (or in attempts one after the other), with times that can be."""
    by_task: dict[str, list[Placement]] = defaultdict(list)
    for line in lines:
        by_task[line.task_id].append(line)
        if line.outcome in PLACED and line.placed_ms is None:
            found.wrong(f"{line.task_id}: is placed at no time")
    for name in by_task.keys() - task_of.keys():
        found.wrong(f"{name}: is no task of the stream")
    for name, row in task_of.items():
        its = sorted(by_task.get(name, ()), key=lambda line: line.attempt)
        if not its:
            found.wrong(f"{name}: has no line")
        for one, following in pairwise(its):
            ended = one.ended_ms if one.outcome is Outcome.PREEMPTED else None
            begins = following.placed_ms
            if ended is None or (begins is not None and begins < ended):
                found.wrong(f"{name}: attempts {one.attempt} and {following.attempt} overlap")
        for line in its:
            _check_times(found, row, line)


def _check_times(found: Checked, row: TaskRow, line: Placement) -> None:
    if line.placed_ms is None:
        if line.machine_id or line.ended_ms is not None:
            found.wrong(f"{row.id}: was not placed, and yet has a machine or an end")
        return
    if line.placed_ms < (row.submit_ms or 0):
        found.wrong(f"{row.id}: is placed before it has come")
    stays = row.submit_ms is None or row.duration_ms is None
    if line.outcome is Outcome.RUNNING and not (stays and line.ended_ms is None):
        found.wrong(f"{row.id}: runs on, and yet has an end or a duration")
    if line.outcome is Outcome.SUCCEEDED and (
        stays or line.ended_ms != line.placed_ms + (row.duration_ms or 0)
    ):
        found.wrong(f"{row.id}: does not end after its duration")


def _check_rules(found: Checked, demand: Demand, machine: MachineRow, line: Placement) -> None:
    """What does not change with time."""
    reason = _barred(demand, machine)
    if reason:
        found.wrong(f"{line.task_id} on {machine.id}: {reason}")
    devices = line.gpu_devices
    if len(devices) != demand.devices or len(set(devices)) != len(devices):
        found.wrong(f"{line.task_id}: has devices {devices}, asks for {demand.devices}")
    if any(not 0 <= device < machine.capacity.gpu for device in devices):
        found.wrong(f"{line.task_id} on {machine.id}: no such device among {devices}")


def _barred(demand: Demand, machine: MachineRow) -> str:
    """The rule of the task that the machine does not meet, in words; empty if there is none."""
    if machine.cordoned:
        return "is cordoned"
    unasked = _unasked(demand, machine)
    if unasked:
        return unasked
    for key, value in machine.taints:
        if (key, value) not in demand.tolerations and (key, None) not in demand.tolerations:
            return f"has taint {key} = {value!r}"
    return ""


def _unasked(demand: Demand, machine: MachineRow) -> str:
    """What the task itself does not want of a machine."""
    if demand.clusters and machine.cluster not in demand.clusters:
        return f"is in cluster {machine.cluster!r}"
    if demand.zones and machine.zone not in demand.zones:
        return f"is in zone {machine.zone!r}"
    if demand.gpu_models and machine.gpu_model not in demand.gpu_models:
        return f"has GPUs {machine.gpu_model!r}"
    for key, value in demand.labels:
        if machine.labels.get(key) != value:
            return f"has label {key} = {machine.labels.get(key)!r}"
    labels = labels_of(machine)
    for term in demand.rules.labels:
        if not label_met(term, labels):
            return f"has label {term.key} = {labels.get(term.key)!r}"
    return ""


def _move(found: Checked, books: _Books, demand: Demand, line: Placement, sign: int) -> None:
    """One task begins (1) or ends (-1)."""
    for name in COUNTED:
        books.used[name] += sign * getattr(demand.asks, name)
    known = [device for device in set(line.gpu_devices) if 0 <= device < len(books.device_milli)]
    for device in known:
        books.device_milli[device] += sign * demand.milli_per_device
    group = (demand.team, demand.service)
    if demand.service:
        books.services[group] += sign
    if sign < 0:
        return
    for name in COUNTED:
        there = getattr(books.machine.capacity, name)
        used = books.used[name]
        if getattr(demand.asks, name) and used > there:
            found.wrong(f"{line.task_id} on {books.machine.id}: {name} {used} > {there}")
    for device in known:
        if books.device_milli[device] > DEVICE_MILLI:
            found.wrong(f"{line.task_id} on {books.machine.id}: device {device} is overfull")
    if demand.max_per_machine and books.services[group] > demand.max_per_machine:
        found.wrong(f"{line.task_id} on {books.machine.id}: too many of {demand.service!r}")


def _check_left_out(
    found: Checked,
    books: Sequence[_Books],
    task_of: dict[str, TaskRow],
    lines: Sequence[Placement],
    neighbours: Neighbours,
) -> None:
    """In a run that never gives room back whatever fits at the end would have fitted all along; on
    the clock it would have been placed at the last ending. But what waits for the company of others
    is passed over for good where room never comes back."""
    left: dict[int, tuple[Demand, str, Outcome]] = {}
    for line in lines:
        row = task_of.get(line.task_id)
        if row is not None and line.outcome not in PLACED and not _passed_over(row):
            left.setdefault(id(row.demand), (row.demand, line.task_id, line.outcome))
    for demand, name, outcome in left.values():
        for one in books:
            if _has_room(one, demand) and not neighbours.broken(demand, one.machine):
                found.wrong(f"{name}: is {outcome}, and yet {one.machine.id} has room for it")
                break


def _passed_over(row: TaskRow) -> bool:
    rules = row.demand.rules
    hoping = any(near.required for near in rules.near) or any(even.required for even in rules.even)
    return row.submit_ms is None and hoping


def _has_room(books: _Books, demand: Demand) -> bool:
    if _barred(demand, books.machine):
        return False
    for name in COUNTED:
        asked = getattr(demand.asks, name)
        if asked and books.used[name] + asked > getattr(books.machine.capacity, name):
            return False
    each = demand.milli_per_device
    if sum(milli + each <= DEVICE_MILLI for milli in books.device_milli) < demand.devices:
        return False
    held = books.services[(demand.team, demand.service)]
    return not demand.max_per_machine or held < demand.max_per_machine


def spread_skew(
    machines: Sequence[MachineRow], tasks: Sequence[TaskRow], placements: Iterable[Placement]
) -> dict[str, int]:
    """Per service, how many more of its running tasks the fullest zone has than the emptiest one
    (spreading is a preference: a figure to look at, not a violation)."""
    zone_of = {one.id: one.zone for one in machines}
    service_of = {row.id: row.demand.service for row in tasks}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for line in placements:
        service = service_of.get(line.task_id, "")
        if service and line.outcome is Outcome.RUNNING:
            counts[service][zone_of[line.machine_id]] += 1
    zones = set(zone_of.values())
    return {
        service: max(per_zone.values()) - min(per_zone[zone] for zone in zones)
        for service, per_zone in sorted(counts.items())
    }
