"""A language for rounds: one line per machine, running task, waiting task and expectation.

    machine m1  cpu=4 memory=8Gi gpu=1 fpga=2  cluster=c1 zone=a rack=r1  label:disk=ssd
                taint:dedicated=ml  cordoned silent        (one line: end it with a backslash)
    cluster c1  closed
    running r1  cpu=2 team=red service=web apart=db  on m1
    pending t1  cpu=2 memory=1Gi  team=red band=HIGH  cluster=c1|c2 zone=a|b
                label:disk=ssd|nvme label:old!=yes label:ssd? label:hdd!?  tolerate:dedicated=ml
                service=web max=1 apart=db spread=zone  cooling=c1   (waits longer than the next)
    expect  t1  -> m1|m2
    expect  t1  waits no_room_cpu=2 tainted=1  "largest free cpu_milli 1000 < 2000"

Machines are in cluster c1 with 4 cores and 8 GiB, tasks of team red ask for 1 core and 1 GiB,
unless the line says otherwise. Every pending task needs an expectation.
"""

import shlex
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from domain.constraint import (
    Apart,
    Constraints,
    Even,
    LabelTerm,
    Limit,
    Near,
    Operator,
    Spread,
    Taint,
    Toleration,
)
from domain.fleet import Beside, Fleet, MachineStanding, PendingTask
from domain.priority import Band
from domain.resources import COLUMNS, Resources, parse_quantity
from domain.shape import shape_digest
from domain.task import TaskSpec
from placement.index import MachineIndex
from placement.policy import POLICIES
from placement.round import RoundResult, place

START = datetime(2026, 1, 1, tzinfo=UTC)
_STANDARD = ("cpu", "memory", "gpu", "disk", "net")


@dataclass
class Scenario:
    """A world read from text, and what is expected of it."""

    machines: dict[str, MachineStanding] = field(default_factory=dict)
    clusters: dict[str, bool] = field(default_factory=dict)
    pending: list[PendingTask] = field(default_factory=list)
    cooling: dict[str, frozenset[str]] = field(default_factory=dict)
    running: dict[str, tuple[TaskSpec, str]] = field(default_factory=dict)
    expected: dict[str, list[str]] = field(default_factory=dict)

    @property
    def fleet(self) -> Fleet:
        """The world as the ledger would hand it over."""
        return Fleet(machines=tuple(self.machines.values()), clusters=self.clusters, revision=1)

    def key(self, name: str) -> str:
        """The task key of a name in the text."""
        return next(task.key for task in self.pending if task.key.endswith(f"/{name}"))


def check_round(text: str, *, policy: str = "pack", seed: int = 1) -> RoundResult:
    """Run one round over the world of `text`, and compare it with every expectation there."""
    world = read(text)
    index = MachineIndex()
    index.replace(world.fleet)
    result = place(index, world.pending, POLICIES[policy], seed, cooling=world.cooling)
    where = {one.key: one.machine for one in result.placed}
    names = {task.key.partition("/")[2] for task in world.pending}
    assert names == world.expected.keys(), "every pending task needs one expectation"
    for name, words in world.expected.items():
        key = world.key(name)
        if words[0] == "->":
            assert where.get(key) in words[1].split("|"), (name, where.get(key), result.verdicts)
        else:
            assert key in result.verdicts, f"{name} went to {where.get(key)}"
            verdict = result.verdicts[key]
            counts = dict(word.split("=") for word in words[1:] if " " not in word)
            assert {r.value: str(n) for r, n in verdict.lost.items()} == counts, (name, verdict)
            details = [word for word in words[1:] if " " in word]
            assert all(detail in verdict.detail for detail in details), (name, verdict)
    return result


def read(text: str) -> Scenario:
    """The world that the lines describe."""
    world = Scenario()
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        kind, name, rest = words[0], words[1], words[2:]
        match kind:
            case "machine":
                world.machines[name] = _machine(name, rest)
            case "cluster":
                world.clusters[name] = rest != ["closed"]
            case "running":
                _run(world, _task(name, rest[:-2]), rest[-1])
            case "pending":
                _add_pending(world, name, rest)
            case "expect":
                world.expected[name] = rest
            case _:
                raise ValueError(f"unknown line: {line}")
    for machine in world.machines.values():
        world.clusters.setdefault(machine.cluster, True)
    return world


def _machine(name: str, words: list[str]) -> MachineStanding:
    given, flags = _split(words)
    prefixed = {p: _without(given, p) for p in ("label", "taint")}
    cluster, zone, rack = (given.pop(word, "") for word in ("cluster", "zone", "rack"))
    capacity = _resources({"cpu": "4", "memory": "8Gi"} | given)
    assert set(flags) <= {"cordoned", "silent"}, flags
    return MachineStanding(
        cluster=cluster or "c1",
        name=name,
        zone=zone,
        rack=rack,
        labels=prefixed["label"],
        taints=tuple(Taint(key=key, value=value) for key, value in prefixed["taint"].items()),
        capacity=capacity.vector(),
        used=(0, 0, 0, 0, 0),
        cordoned="cordoned" in flags,
        reachable="silent" not in flags,
        capacity_extra=capacity.extra,
    )


def _run(world: Scenario, task: TaskSpec, machine: str) -> None:
    world.running[task.id] = (task, machine)
    there = world.machines[machine]
    asked, rules = task.resources, task.constraints
    beside = there.beside
    if rules.service is not None or rules.shuns:
        beside += (Beside(task.team, rules.service, rules.shuns, 1),)
    held = Resources(**dict(zip(COLUMNS, there.used, strict=True)), extra=dict(there.used_extra))
    used = held.plus(asked)
    world.machines[machine] = replace(
        there, used=used.vector(), used_extra=used.extra, beside=beside
    )


def _add_pending(world: Scenario, name: str, words: list[str]) -> None:
    cooling = [word.partition("=")[2] for word in words if word.startswith("cooling=")]
    spec = _task(name, [word for word in words if not word.startswith("cooling=")])
    waited = timedelta(seconds=len(world.pending))
    task = pending_task(spec, enqueued_at=START + waited)
    world.pending.append(task)
    if cooling:
        world.cooling[task.shape] = frozenset(cooling[0].split("|"))


def pending_task(spec: TaskSpec, *, enqueued_at: datetime = START) -> PendingTask:
    """The row of a task that waits."""
    return PendingTask(
        key=spec.key,
        team=spec.team,
        band=spec.priority,
        enqueued_at=enqueued_at,
        number=0,
        shape=shape_digest(spec),
        spec=spec,
    )


def _task(name: str, words: list[str]) -> TaskSpec:
    terms = [_term(word.removeprefix("label:")) for word in words if word.startswith("label:")]
    given, flags = _split([word for word in words if not word.startswith("label:")])
    assert not [flag for flag in flags if not flag.startswith("tolerate:")], flags
    tolerations = [Toleration(key=flag.removeprefix("tolerate:")) for flag in flags]
    tolerations += [Toleration(key=k, value=v) for k, v in _without(given, "tolerate").items()]
    rules: dict[str, Any] = {"labels": tuple(terms), "tolerations": tuple(tolerations)}
    for word, rule in (("cluster", "clusters"), ("zone", "zones")):
        if word in given:
            rules[rule] = tuple(given.pop(word).split("|"))
    rules |= _between(given)
    if "max" in given:
        rules["max_per_machine"] = int(given.pop("max"))
    rules["service"] = given.pop("service", None)
    rules["spread"] = Spread(given.pop("spread", "none"))
    team, band = given.pop("team", "red"), Band[given.pop("band", "NORMAL")]
    return TaskSpec(
        team=team,
        id=name,
        command=("true",),
        priority=band,
        resources=_resources({"cpu": "1", "memory": "1Gi"} | given),
        constraints=Constraints(**rules),
    )


def _between(given: dict[str, str]) -> dict[str, Any]:
    """`apart=db`, `apart=db@rack`, `near=db@zone`, `prefer=db@zone`, `limit:rack=1`, `even:zone=1`,
    `evenly:zone=1` (a wish)."""
    shunned = [name.partition("@") for name in given.pop("apart", "").split("|") if name]
    near = [
        Near(service=name, over=over or "machine", required=word == "near")
        for word in ("near", "prefer")
        for name, _, over in [one.partition("@") for one in given.pop(word, "").split("|") if one]
    ]
    even = [
        Even(over=over, max_skew=int(skew), required=word == "even")
        for word in ("even", "evenly")
        for over, skew in _without(given, word).items()
    ]
    limits = _without(given, "limit").items()
    return {
        "anti_affinity": tuple(name for name, _, over in shunned if not over),
        "apart": tuple(Apart(service=name, over=over) for name, _, over in shunned if over),
        "near": tuple(near),
        "even": tuple(even),
        "limits": tuple(Limit(over=over, tasks=int(tasks)) for over, tasks in limits),
    }


def _term(word: str) -> LabelTerm:
    if word.endswith("!?"):
        return LabelTerm(key=word[:-2], operator=Operator.NOT_EXISTS)
    if word.endswith("?"):
        return LabelTerm(key=word[:-1], operator=Operator.EXISTS)
    key, _, written = word.partition("!=" if "!=" in word else "=")
    values = tuple(written.split("|"))
    if "!=" in word:
        operator = Operator.NOT_EQUAL if len(values) == 1 else Operator.NOT_IN
    else:
        operator = Operator.EQUAL if len(values) == 1 else Operator.IN
    return LabelTerm(key=key, operator=operator, values=values)


def _split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    pairs = [word.partition("=") for word in words]
    return {k: v for k, eq, v in pairs if eq}, [k for k, eq, _ in pairs if not eq]


def _without(given: dict[str, str], prefix: str) -> dict[str, str]:
    """Take the words with this prefix out of `given`."""
    names = [name for name in given if name.startswith(f"{prefix}:")]
    return {name.partition(":")[2]: given.pop(name) for name in names}


def _resources(given: dict[str, str]) -> Resources:
    written: dict[str, Any] = {name: given[name] for name in _STANDARD if name in given}
    if "gpu" in written:
        written["gpu"] = int(written["gpu"])
    extra = {n: parse_quantity(v, Fraction(1)) for n, v in given.items() if n not in _STANDARD}
    return Resources(**written, extra=extra)
