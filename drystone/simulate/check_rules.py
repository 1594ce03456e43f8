"""Were the rules about labels and between tasks kept? Plain Python, for the independent check.

Shares no code with the engine: what a rule means is written down here once more, by machine.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from domain.constraint import Even, LabelTerm
from drystone.simulate.records import Demand, MachineRow

Domain = Hashable | None
_RANGES = re.compile(r"\s*(~>|[<>=!]*)\s*([^\s,]+)")


class Begin(NamedTuple):
    """A task that begins on a machine."""

    task_id: str
    machine_id: str
    demand: Demand


def label_met(term: LabelTerm, labels: Mapping[str, str]) -> bool:
    """The machine's labels meet one condition."""
    there, wanted = labels.get(term.key), term.values
    match str(term.operator):
        case "not exists":
            return there is None
        case "!=" | "not in":
            return there not in wanted
        case "=" | "in":
            return there in wanted
        case "exists":
            return there is not None
    return there is not None and _met(str(term.operator), there, wanted)


def _met(operator: str, there: str, wanted: Sequence[str]) -> bool:
    match operator:
        case "regexp":
            return re.search(wanted[0], there, re.ASCII) is not None
        case "contains" | "contains any":
            listed = [part.strip() for part in there.split(",")]
            found = [value.strip() in listed for value in wanted]
            return all(found) if operator == "contains" else any(found)
        case "version" | "semver":
            return _in_range(there, wanted[0], strict=operator == "semver")
    left, right = _number(there), _number(wanted[0])
    if right is None:
        return _compares(operator, there > wanted[0], there == wanted[0])
    return left is not None and _compares(operator, left > right, left == right)


def _compares(operator: str, more: bool, same: bool) -> bool:
    allowed = {
        "<": not more and not same,
        "<=": not more,
        ">": more,
        ">=": more or same,
        "!=": not same,
    }
    return allowed.get(operator, same)


def _number(text: str) -> Decimal | None:
    try:
        return None if re.search(r"[^0-9.+-]", text) else Decimal(text)
    except InvalidOperation:
        return None


def _version(text: str) -> tuple[list[int], list[str]] | None:
    plain, _, before = text.removeprefix("v").partition("+")[0].partition("-")
    if not re.fullmatch(r"\d+(\.\d+)*", plain):
        return None
    return [int(part) for part in plain.split(".")], before.split(".") if before else []


def _in_range(text: str, wanted: str, *, strict: bool) -> bool:
    there = _version(text)
    if there is None or (strict and len(there[0]) != 3):
        return False
    for operator, written in _RANGES.findall(wanted):
        want = _version(written)
        assert want is not None, "refused at submission"
        mine, its = _sorts(*there), _sorts(*want)
        marked = not strict and bool(there[1]) and operator not in ("", "=", "==", "!=")
        if marked and not (want[1] and mine[0] == its[0]):
            return False
        if operator == "~>":
            fixed = len(want[0]) - 1
            if (there[0] + [0] * fixed)[:fixed] != want[0][:fixed] or mine < its:
                return False
        elif not _compares(operator, mine > its, mine == its):
            return False
    return True


def _sorts(parts: list[int], before: list[str]) -> tuple[list[int], list[tuple[int, int, str]]]:
    while parts and parts[-1] == 0:
        parts = parts[:-1]
    marks = [(0, int(m), "") if m.isdigit() else (1, 0, m) for m in before]
    return parts, marks or [(2, 0, "")]


class Neighbours:
    """Who lives where, domain by domain."""

    def __init__(
        self, machines: Sequence[MachineRow], may_use: Callable[[Demand, MachineRow], bool]
    ) -> None:
        self._machine = {one.id: one for one in machines}
        self._may_use = may_use
        self._living: dict[str, Counter[Demand]] = defaultdict(Counter)
        self._members: dict[str, dict[Domain, list[MachineRow]]] = {}

    def move(self, one: Begin, number: int) -> None:
        """One more there, or (-1) one less."""
        self._living[one.machine_id][one.demand] += number

    def begin(self, together: Sequence[Begin]) -> list[str]:
        """Tasks that begin at one moment: what is wrong with those for which there is no order in
        which each finds its rules kept."""
        left = list(together)
        while left:
            waiting = []
            for one in left:
                if self.broken(one.demand, self._machine[one.machine_id]):
                    waiting.append(one)
                else:
                    self.move(one, 1)
            if len(waiting) == len(left):
                break
            left = waiting
        else:
            return []
        wrong = [
            f"{one.task_id} on {one.machine_id}: "
            + self.broken(one.demand, self._machine[one.machine_id])
            for one in left
        ]
        for one in left:
            self.move(one, 1)
        return wrong

    def broken(self, demand: Demand, machine: MachineRow) -> str:
        """A rule between tasks that would not be kept there, in words; empty if there is none."""
        rules, team = demand.rules, demand.team
        for name in rules.anti_affinity:
            if self._count(team, name, [machine]):
                return f"is beside {name!r}"
        for apart in rules.apart:
            if self._count(team, apart.service, self._same(machine, apart.over)):
                return f"shares its {apart.over} with {apart.service!r}"
        shunned = self._shunned(demand, machine)
        if shunned:
            return shunned
        for limit in rules.limits:
            there = self._domain(machine, limit.over) is not None
            held = self._count(team, demand.service, self._same(machine, limit.over))
            if not there or held >= limit.tasks:
                return f"too many of {demand.service!r} in its {limit.over}"
        for even in rules.even:
            if even.required and self._skew(demand, machine, even) > even.max_skew:
                return f"{demand.service!r} is uneven over its {even.over}"
        for near in rules.near:
            if near.required and not self._count(
                team, near.service, self._same(machine, near.over)
            ):
                first = near.service == demand.service and not self._count(
                    team, near.service, self._machine.values()
                )
                if not first or self._domain(machine, near.over) is None:
                    return f"is not near {near.service!r}"
        return ""

    def _shunned(self, demand: Demand, machine: MachineRow) -> str:
        """Somebody is there who does not want it there."""
        if not demand.service:
            return ""
        for where, living in self._living.items():
            for other, number in living.items():
                if number <= 0 or other.team != demand.team:
                    continue
                if where == machine.id and demand.service in other.rules.anti_affinity:
                    return f"is shunned by a task on {where}"
                for apart in other.rules.apart:
                    here = self._domain(machine, apart.over)
                    there = self._domain(self._machine[where], apart.over)
                    if apart.service == demand.service and here is not None and here == there:
                        return f"is shunned in its {apart.over} by a task on {where}"
        return ""

    def _skew(self, demand: Demand, machine: MachineRow, even: Even) -> float:
        here = self._domain(machine, even.over)
        if here is None:
            return float("inf")
        counts = {}
        for domain, members in self._all(even.over).items():
            usable = [one for one in members if self._may_use(demand, one)]
            if domain is not None and (usable or domain == here):
                counts[domain] = (self._count(demand.team, demand.service, usable), bool(usable))
        usual = [number for number, usable in counts.values() if usable]
        fewest = min(usual) if usual and len(usual) >= even.min_domains else 0
        return counts[here][0] + 1 - fewest

    def _count(self, team: str, service: str, machines: Iterable[MachineRow]) -> int:
        return sum(
            number
            for machine in machines
            for demand, number in self._living[machine.id].items()
            if (demand.team, demand.service) == (team, service)
        )

    def _same(self, machine: MachineRow, over: str) -> Sequence[MachineRow]:
        domain = self._domain(machine, over)
        return [] if domain is None else self._all(over)[domain]

    def _all(self, over: str) -> dict[Domain, list[MachineRow]]:
        if over not in self._members:
            members: dict[Domain, list[MachineRow]] = defaultdict(list)
            for one in self._machine.values():
                members[self._domain(one, over)].append(one)
            self._members[over] = members
        return self._members[over]

    def _domain(self, machine: MachineRow, over: str) -> Domain:
        match over:
            case "machine":
                return machine.id
            case "rack":
                return (machine.cluster, machine.zone, machine.rack) if machine.rack else None
            case "zone":
                return machine.zone or None
        return labels_of(machine).get(over.removeprefix("label:"))


def labels_of(machine: MachineRow) -> Mapping[str, str]:
    """Which GPUs it has is a label as well."""
    return (
        {**machine.labels, "gpu_model": machine.gpu_model}
        if machine.gpu_model
        else (machine.labels)
    )
