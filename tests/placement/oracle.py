"""The plain meaning of a round, machine by machine in plain Python, to compare the fast one with.

Shares no code with `placement` but the policies' weights and the round's draw, which are data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from domain.constraint import Spread
from domain.fleet import Fleet, MachineStanding, PendingTask
from domain.reasons import RESOURCE_REASON, Reason
from domain.resources import COLUMNS
from domain.task import TaskSpec

WEIGHTS = {
    "pack": {"packing": 0.95, "best_fit": 0.05},
    "best_fit": {"best_fit": 1.0},
    "spread": {"load": 1.0},
}
SPREAD_WEIGHT = 2.0
SCORE_STEPS = 2**20


@dataclass
class Machine:
    """One machine, with what has been put on it."""

    row: MachineStanding
    opened: bool
    draw: int
    free: list[int] = field(default_factory=list)
    extra: dict[str, int] = field(default_factory=dict)
    neighbours: list[tuple[str, str | None, tuple[str, ...]]] = field(default_factory=list)

    def beside(self, team: str, service: str | None) -> int:
        """How many of a team's service are here."""
        return sum(1 for t, s, _ in self.neighbours if (t, s) == (team, service))


@dataclass
class Told:
    """What the oracle decided."""

    placed: list[tuple[str, str, str]]
    lost: dict[str, dict[Reason, int]]


def machines_of(fleet: Fleet, seed: int) -> list[Machine]:
    """The world before the round, with the round's draw."""
    rows = sorted(fleet.machines, key=lambda row: (row.cluster, row.name))
    draws = np.random.Generator(np.random.PCG64(seed)).permutation(len(rows)).tolist()
    machines = []
    for row, draw in zip(rows, draws, strict=True):
        machine = Machine(row, fleet.clusters[row.cluster], draw)
        machine.free = [c - u for c, u in zip(row.capacity, row.used, strict=True)]
        names = {*row.capacity_extra, *row.used_extra}
        machine.extra = {n: row.capacity_extra.get(n, 0) - row.used_extra.get(n, 0) for n in names}
        for one in row.beside:
            machine.neighbours += [(one.team, one.service, one.shuns)] * one.count
        machines.append(machine)
    return machines


def run(
    fleet: Fleet,
    pending: list[PendingTask],
    policy: str,
    seed: int,
    cooling: Mapping[str, frozenset[str]],
) -> Told:
    """One round."""
    machines = machines_of(fleet, seed)
    placed, waiting = [], []
    for task in sorted(pending, key=lambda task: (task.band.value, task.enqueued_at, task.key)):
        cools = cooling.get(task.shape, frozenset())
        fitting = [m for m in machines if first_reason(m, task.spec, cools) is None]
        if not fitting:
            waiting.append((task, cools))
            continue
        best = max(fitting, key=lambda m: (rank(m, task.spec, policy, machines, cools), m.draw))
        put(best, task.spec)
        placed.append((task.key, best.row.cluster, best.row.name))
    lost: dict[str, dict[Reason, int]] = {}
    for task, cools in waiting:
        counts: dict[Reason, int] = {}
        for machine in machines:
            reason = first_reason(machine, task.spec, cools)
            assert reason is not None
            counts[reason] = counts.get(reason, 0) + 1
        lost[task.key] = counts
    return Told(placed, lost)


def put(machine: Machine, spec: TaskSpec) -> None:
    """The task holds its room from now on."""
    machine.free = [f - a for f, a in zip(machine.free, spec.resources.vector(), strict=True)]
    for name, amount in spec.resources.extra.items():
        machine.extra[name] = machine.extra.get(name, 0) - amount
    rules = spec.constraints
    if rules.service is not None or rules.anti_affinity:
        machine.neighbours.append((spec.team, rules.service, rules.anti_affinity))


def first_reason(machine: Machine, spec: TaskSpec, cooling: frozenset[str]) -> Reason | None:
    """Why the machine cannot take the task, the first in the order of the predicates."""
    row, rules = machine.row, spec.constraints
    if rules.clusters and row.cluster not in rules.clusters:
        return Reason.OTHER_CLUSTER
    if rules.zones and row.zone not in rules.zones:
        return Reason.OTHER_ZONE
    if not all(term.matches(dict(row.labels)) for term in rules.labels):
        return Reason.LABEL_MISSING
    if not all(any(t.tolerates(taint) for t in rules.tolerations) for taint in row.taints):
        return Reason.TAINTED
    if not row.reachable or not machine.opened:
        return Reason.UNREACHABLE
    if row.cordoned:
        return Reason.CORDONED
    if row.cluster in cooling:
        return Reason.COOLING_DOWN
    for name, free, asked in zip(COLUMNS, machine.free, spec.resources.vector(), strict=True):
        if asked and free < asked:
            return RESOURCE_REASON[name]
    for name, asked in spec.resources.extra.items():
        if asked and machine.extra.get(name, 0) < asked:
            return Reason.NO_ROOM_EXTRA
    for team, service, shuns in machine.neighbours:
        if team == spec.team and (service in rules.anti_affinity or rules.service in shuns):
            return Reason.ANTI_AFFINITY
    limit = rules.max_per_machine
    if limit is not None and machine.beside(spec.team, rules.service) >= limit:
        return Reason.TOO_MANY_PER_MACHINE
    return None


def rank(
    machine: Machine,
    spec: TaskSpec,
    policy: str,
    machines: list[Machine],
    cooling: frozenset[str],
) -> int:
    """The score in whole steps: what is nearer than a step is equal."""
    total = 0.0
    for name, weight in WEIGHTS[policy].items():
        total += weight * SCORERS[name](machine, spec)
    if spec.constraints.spread is not Spread.NONE:
        total = total + SPREAD_WEIGHT * spread(machine, spec, machines, cooling)
    return int(total / (sum(WEIGHTS[policy].values()) + SPREAD_WEIGHT) * SCORE_STEPS)


def packing(machine: Machine, spec: TaskSpec) -> float:
    """Cosine between what is taken and what is free."""
    takes, free = [], []
    for size, there, asked in zip(
        machine.row.capacity[:3], machine.free, spec.resources.vector(), strict=False
    ):
        share = 1.0 / size if size else 0.0
        takes.append(asked * share)
        free.append(min(max(there * share, 0.0), 1.0))
    along = takes[0] * free[0] + takes[1] * free[1] + takes[2] * free[2]
    lengths = (takes[0] * takes[0] + takes[1] * takes[1] + takes[2] * takes[2]) * (
        free[0] * free[0] + free[1] * free[1] + free[2] * free[2]
    )
    return min(along / math.sqrt(lengths), 1.0) if lengths > 0.0 else 0.0


def load(machine: Machine, spec: TaskSpec) -> float:
    """Mean part still free."""
    parts = []
    for size, there, asked in zip(
        machine.row.capacity[:3], machine.free, spec.resources.vector(), strict=False
    ):
        share = 1.0 / size if size else 0.0
        parts.append(min(max((there - asked) * share, 0.0), 1.0))
    sized = sum(1 for size in machine.row.capacity[:3] if size)
    return (parts[0] + parts[1] + parts[2]) / max(sized, 1)


def spread(
    machine: Machine, spec: TaskSpec, machines: list[Machine], cooling: frozenset[str]
) -> float:
    """One over one plus how many more than the least used domain that has room."""

    def domain(one: Machine) -> tuple[str, ...]:
        match spec.constraints.spread:
            case Spread.ZONE:
                return (one.row.zone,)
            case Spread.RACK:
                return (one.row.cluster, one.row.zone, one.row.rack)
            case _:
                return (one.row.cluster, one.row.name)

    def count(one: Machine) -> int:
        here = [m for m in machines if domain(m) == domain(one)]
        return sum(m.beside(spec.team, spec.constraints.service) for m in here)

    fewest = min(count(m) for m in machines if first_reason(m, spec, cooling) is None)
    return 1.0 / (1.0 + (count(machine) - fewest))


SCORERS = {"packing": packing, "best_fit": lambda m, s: 1.0 - load(m, s), "load": load}
