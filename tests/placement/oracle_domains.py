"""The plain meaning of rules over domains, machine by machine. Shares no code with `placement`."""

from collections.abc import Sequence
from typing import Protocol

from domain.constraint import Constraints
from domain.fleet import MachineStanding
from domain.reasons import Reason
from domain.task import TaskSpec

WISH_WEIGHT = 2.0
Lives = tuple[str, str | None, tuple[str, ...]]
Domain = tuple[str, ...]


class Place(Protocol):
    """A machine and who lives there."""

    row: MachineStanding
    neighbours: list[Lives]


def domain_of(machine: Place, over: str) -> Domain | None:
    """Which domain it is in."""
    row = machine.row
    match over:
        case "machine":
            return (row.cluster, row.name)
        case "rack":
            return (row.cluster, row.zone, row.rack) if row.rack else None
        case "zone":
            return (row.zone,) if row.zone else None
    value = row.labels.get(over.removeprefix("label:"))
    return None if value is None else (value,)


def living(machines: Sequence[Place], over: str, where: Domain) -> list[Lives]:
    """Who lives in a domain."""
    return [one for m in machines if domain_of(m, over) == where for one in m.neighbours]


def count(machines: Sequence[Place], over: str, where: Domain, team: str, service: str) -> int:
    """How many of a team's service are in a domain."""
    return sum((t, s) == (team, service) for t, s, _ in living(machines, over, where))


def reasons(machine: Place, spec: TaskSpec, machines: Sequence[Place]) -> set[Reason]:
    """Everything over domains that keeps the task off the machine."""
    rules, team = spec.constraints, spec.team
    overs = [near.over for near in rules.near if near.required]
    overs += [limit.over for limit in rules.limits]
    overs += [even.over for even in rules.even if even.required]
    found = {Reason.NO_SUCH_DOMAIN for over in overs if domain_of(machine, over) is None}
    if _is_apart(machine, spec, machines):
        found.add(Reason.ANTI_AFFINITY)
    for limit in rules.limits:
        here, service = domain_of(machine, limit.over), rules.service or ""
        if here is None or count(machines, limit.over, here, team, service) >= limit.tasks:
            too_many = {
                "rack": Reason.TOO_MANY_PER_RACK,
                "zone": Reason.TOO_MANY_PER_ZONE,
            }
            found.add(too_many.get(limit.over, Reason.TOO_MANY_PER_VALUE))
    for even in rules.even:
        if even.required and _skew_after(machine, spec, machines, even.over, even.min_domains) > (
            even.max_skew
        ):
            found.add(Reason.UNEVEN)
    for near in rules.near:
        if near.required and not _is_near(machine, spec, machines, near.service, near.over):
            found.add(Reason.NOT_NEAR)
    return found


def _is_apart(machine: Place, spec: TaskSpec, machines: Sequence[Place]) -> bool:
    team, service = spec.team, spec.constraints.service
    for rule in spec.constraints.apart:
        here = domain_of(machine, rule.over)
        if here is not None and count(machines, rule.over, here, team, rule.service):
            return True
    for other in machines:
        for their_team, _, shuns in other.neighbours:
            for shunned in shuns:
                name, _, over = shunned.partition("@")
                if over and (their_team, name) == (team, service):
                    here = domain_of(machine, over)
                    if here is not None and here == domain_of(other, over):
                        return True
    return False


def may_use(machine: Place, rules: Constraints) -> bool:
    """The machine is one of those that the task's own rules allow."""
    row = machine.row
    return (
        (not rules.clusters or row.cluster in rules.clusters)
        and (not rules.zones or row.zone in rules.zones)
        and all(term.matches(dict(row.labels)) for term in rules.labels)
    )


def _skew_after(
    machine: Place, spec: TaskSpec, machines: Sequence[Place], over: str, min_domains: int
) -> float:
    usable = [m for m in machines if may_use(m, spec.constraints)]
    domains = {where for m in usable if (where := domain_of(m, over)) is not None}
    here, service = domain_of(machine, over), spec.constraints.service or ""
    if here is None:
        return float("inf")
    counts = {where: count(usable, over, where, spec.team, service) for where in {*domains, here}}
    enough = bool(domains) and len(domains) >= min_domains
    return counts[here] + 1 - (min(counts[where] for where in domains) if enough else 0)


def _is_near(
    machine: Place, spec: TaskSpec, machines: Sequence[Place], service: str, over: str
) -> bool:
    here = domain_of(machine, over)
    if here is None:
        return False
    if count(machines, over, here, spec.team, service):
        return True
    anywhere = any((t, s) == (spec.team, service) for m in machines for t, s, _ in m.neighbours)
    return service == spec.constraints.service and not anywhere


def with_wishes(
    score: float,
    machine: Place,
    spec: TaskSpec,
    machines: Sequence[Place],
    fitting: Sequence[Place],
) -> float:
    """The score of a machine, with what the task prefers about its neighbours."""
    wishes = []
    for near in spec.constraints.near:
        if not near.required:
            here = domain_of(machine, near.over)
            there = here and count(machines, near.over, here, spec.team, near.service)
            wishes.append(1.0 if there else 0.0)
    for even in spec.constraints.even:
        if not even.required:
            service = spec.constraints.service or ""
            domains = {w for m in fitting if (w := domain_of(m, even.over)) is not None}
            counts = {w: count(machines, even.over, w, spec.team, service) for w in domains}
            own = domain_of(machine, even.over)
            wishes.append(0.0 if own is None else 1 / (1 + counts[own] - min(counts.values())))
    if not wishes:
        return score
    return (score + WISH_WEIGHT * sum(wishes) / len(wishes)) / (1.0 + WISH_WEIGHT)
