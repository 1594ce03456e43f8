"""The plain meaning of placement, machine by machine in plain Python, to compare the fast one with.

Shares no code with `placement` but the policies' weights, which are data.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from domain.constraint import Spread
from domain.fleet import Fleet, MachineStanding, PendingTask
from domain.reasons import RESOURCE_REASON, Reason
from domain.resources import COLUMNS
from domain.task import TaskSpec
from tests.placement import oracle_domains

GPU_PACK = {"gradient": 0.955, "balance": 0.02, "memory_balance": 0.01, "busy": 0.015}
"""Of machines with GPUs, where the policy is `pack`."""
WEIGHTS = {
    "pack": {"packing": 0.98, "fullness": 0.02},
    "best_fit": {"best_fit": 1.0},
    "spread": {"load": 1.0},
}
SPREAD_WEIGHT = 2.0
NEXT_TASKS = 12
"""Idle GPU time is worth what it is to so many tasks to come."""
WIDER = (
    *(Reason.TOO_MANY_PER_RACK, Reason.TOO_MANY_PER_ZONE, Reason.TOO_MANY_PER_VALUE),
    *(Reason.UNEVEN, Reason.NOT_NEAR),
)
NEARLY = 4e-6
"""Scores are 32-bit numbers in steps of 2**-20: what is nearer than this is equal."""


@dataclass
class Machine:
    """One machine, with what has been put on it."""

    row: MachineStanding
    opened: bool
    free: list[int] = field(default_factory=list)
    extra: dict[str, int] = field(default_factory=dict)
    neighbours: list[tuple[str, str | None, tuple[str, ...]]] = field(default_factory=list)

    def beside(self, team: str, service: str | None) -> int:
        """How many of a team's service are here."""
        return sum(1 for t, s, _ in self.neighbours if (t, s) == (team, service))


def machines_of(fleet: Fleet) -> dict[tuple[str, str], Machine]:
    """The world before the round."""
    machines = {}
    for row in fleet.machines:
        machine = Machine(row, fleet.clusters[row.cluster])
        machine.free = [c - u for c, u in zip(row.capacity, row.used, strict=True)]
        names = {*row.capacity_extra, *row.used_extra}
        machine.extra = {n: row.capacity_extra.get(n, 0) - row.used_extra.get(n, 0) for n in names}
        for one in row.beside:
            machine.neighbours += [(one.team, one.service, one.shuns)] * one.count
        machines[row.cluster, row.name] = machine
    return machines


def in_order(pending: Sequence[PendingTask]) -> list[PendingTask]:
    """Who is served first."""
    return sorted(pending, key=lambda task: (task.band.value, task.enqueued_at, task.key))


def lost(
    machines: Sequence[Machine], spec: TaskSpec, cooling: frozenset[str]
) -> dict[Reason, int] | None:
    """Machines by the reason for which they cannot take the task; None when one can."""
    counts: dict[Reason, int] = {}
    for machine in machines:
        reason = first_reason(machine, spec, cooling, machines)
        if reason is None:
            return None
        counts[reason] = counts.get(reason, 0) + 1
    return counts


def best(
    machines: Sequence[Machine],
    hand: Sequence[Machine],
    spec: TaskSpec,
    policy: str,
    cooling: Mapping[str, frozenset[str]],
    shape: str,
    mix: Sequence[PendingTask],
) -> list[Machine]:
    """Those of the hand that are as good for the task as any: none when none can take it. Machines
    with GPUs come last where the task needs none; they are kept fit for the tasks of `mix`."""
    cools = cooling.get(shape, frozenset())
    fitting = [m for m in hand if first_reason(m, spec, cools, machines) is None]
    plain = [m for m in fitting if not m.row.capacity[2]]
    if plain and not spec.resources.gpu:
        fitting = plain
    typical = [(task.spec, cooling.get(task.shape, frozenset())) for task in mix]
    scores = [score(m, spec, policy, machines, fitting, typical) for m in fitting]
    return [m for m, s in zip(fitting, scores, strict=True) if s >= max(scores) - NEARLY]


def put(machine: Machine, spec: TaskSpec) -> None:
    """The task holds its room from now on."""
    machine.free = [f - a for f, a in zip(machine.free, spec.resources.vector(), strict=True)]
    for name, amount in spec.resources.extra.items():
        machine.extra[name] = machine.extra.get(name, 0) - amount
    rules = spec.constraints
    if rules.service is not None or rules.shuns:
        machine.neighbours.append((spec.team, rules.service, rules.shuns))


def first_reason(
    machine: Machine, spec: TaskSpec, cooling: frozenset[str], machines: Sequence[Machine]
) -> Reason | None:
    """Why the machine cannot take the task, the first in the order of the predicates."""
    ruled_out = settled_reason(machine, spec, cooling)
    if ruled_out is not None:
        return ruled_out
    rules = spec.constraints
    for name, free, asked in zip(COLUMNS, machine.free, spec.resources.vector(), strict=True):
        if asked and free < asked:
            return RESOURCE_REASON[name]
    for name, asked in spec.resources.extra.items():
        if asked and machine.extra.get(name, 0) < asked:
            return Reason.NO_ROOM_EXTRA
    wider = oracle_domains.reasons(machine, spec, machines)
    if wider & {Reason.NO_SUCH_DOMAIN}:
        return Reason.NO_SUCH_DOMAIN
    for team, service, shuns in machine.neighbours:
        if team == spec.team and (service in rules.anti_affinity or rules.service in shuns):
            return Reason.ANTI_AFFINITY
    if Reason.ANTI_AFFINITY in wider:
        return Reason.ANTI_AFFINITY
    limit = rules.max_per_machine
    if limit is not None and machine.beside(spec.team, rules.service) >= limit:
        return Reason.TOO_MANY_PER_MACHINE
    return next((reason for reason in WIDER if reason in wider), None)


def settled_reason(machine: Machine, spec: TaskSpec, cooling: frozenset[str]) -> Reason | None:
    """The same of what no assignment changes."""
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
    return None


def score(
    machine: Machine,
    spec: TaskSpec,
    policy: str,
    machines: Sequence[Machine],
    fitting: Sequence[Machine],
    typical: Sequence[tuple[TaskSpec, frozenset[str]]],
) -> float:
    """In [0, 1]."""
    of_gpus = policy == "pack" and machine.row.capacity[2] > 0
    weights = dict(GPU_PACK if of_gpus else WEIGHTS[policy])
    total = 0.0
    if "gradient" in weights:
        total += weights["gradient"] * (1.0 - lost_to_fragments(machine, spec, typical) / 8_000)
    plain = {name: weight for name, weight in weights.items() if name != "gradient"}
    total += sum(weight * SCORERS[name](machine, spec) for name, weight in plain.items())
    weight = sum(weights.values())
    if spec.constraints.spread is not Spread.NONE:
        total += SPREAD_WEIGHT * spread(machine, spec, machines, fitting)
        weight += SPREAD_WEIGHT
    return oracle_domains.with_wishes(total / weight, machine, spec, machines, fitting)


def parts(machine: Machine) -> list[float]:
    """What is free of cpu, memory and GPUs, as parts of the machine."""
    there = zip(machine.row.capacity[:3], machine.free, strict=False)
    return [max(free, 0) / size if size else 0.0 for size, free in there]


def packing(machine: Machine, spec: TaskSpec) -> float:
    """Cosine between what is taken of cpu and memory and what is free."""
    sizes, free = machine.row.capacity, parts(machine)
    asked = [max(amount, 1) for amount in spec.resources.vector()[:2]]
    takes = [a / size if size else 0.0 for a, size in zip(asked, sizes, strict=False)]
    along = takes[0] * free[0] + takes[1] * free[1]
    return along / (math.hypot(*takes) * math.hypot(*free)) if along else 0.0


def level(machine: Machine) -> float:
    """Mean part that is free."""
    return sum(parts(machine)) / max(sum(1 for size in machine.row.capacity[:3] if size), 1)


def load(machine: Machine, spec: TaskSpec) -> float:
    """Mean part that would still be free."""
    sizes = machine.row.capacity[:3]
    sized = max(sum(1 for size in sizes if size), 1)
    asked = zip(spec.resources.vector(), sizes, strict=False)
    takes = sum(amount / size for amount, size in asked if size)
    return max(level(machine) - takes / sized, 0.0)


def balance(machine: Machine, spec: TaskSpec, column: int = 0) -> float:
    """1 where equal parts of cpu (or memory) and GPUs would be left."""
    size, gpu = machine.row.capacity[column], machine.row.capacity[2]
    left = (machine.free[column] - spec.resources.vector()[column]) / max(size, 1)
    idle = (max(machine.free[2], 0) - spec.resources.gpu) / max(gpu, 1)
    return 1.0 - abs(left - idle)


def busy(machine: Machine, spec: TaskSpec) -> float:
    """1 where no GPU would stay idle, 0 where eight would."""
    return 1.0 - min(max(machine.free[2] - spec.resources.gpu, 0) / 8, 1.0)


def lost_to_fragments(
    machine: Machine, spec: TaskSpec, typical: Sequence[tuple[TaskSpec, frozenset[str]]]
) -> float:
    """Thousandths of devices, with the chance that one of the next tasks can use them, that are
    there now and would not be afterwards. Whole devices only."""
    asking = [(one, cools) for one, cools in typical if one.resources.gpu]
    if not asking:
        return 0.0

    def usable(cpu: int, memory: int, gpu: int) -> float:
        can = [
            one.resources.gpu
            for one, cools in asking
            if settled_reason(machine, one, cools) is None
            and one.resources.cpu_milli <= cpu
            and one.resources.memory_mib <= memory
            and one.resources.gpu <= gpu
        ]
        return 1_000 * gpu * (1 - (1 - len(can) / len(asking)) ** NEXT_TASKS)

    now = (machine.free[0], machine.free[1], max(machine.free[2], 0))
    asked = spec.resources.vector()
    after = (now[0] - asked[0], now[1] - asked[1], now[2] - asked[2])
    return max(usable(*now) - usable(*after), 0.0)


def spread(
    machine: Machine, spec: TaskSpec, machines: Sequence[Machine], fitting: Sequence[Machine]
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

    return 1.0 / (1.0 + count(machine) - min(count(m) for m in fitting))


SCORERS = {
    "packing": packing,
    "fullness": lambda m, s: 1.0 - level(m),
    "best_fit": lambda m, s: 1.0 - load(m, s),
    "load": load,
    "balance": balance,
    "memory_balance": lambda m, s: balance(m, s, 1),
    "busy": busy,
}
