"""Small random worlds, each from one number: few values, so that ties and shortages are common."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from hypothesis import strategies as st
from pydantic import BaseModel

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
from domain.resources import Resources
from domain.task import TaskSpec
from tests.support.scenario import START, pending_task

CLUSTERS, ZONES, RACKS, TEAMS = ("c1", "c2"), ("a", "b", "c"), ("r1", "r2"), ("red", "blue")
SERVICES = ("web", "db")
OVERS = ("zone", "rack", "label:disk")
LABELS = {
    "disk": ("ssd", "hdd"),
    "arch": ("arm", "x86"),
    "cores": ("8", "16", "16.0", "many"),
    "driver": ("1.2.3", "1.3.0-beta1", "2.0", "odd"),
    "flags": ("fast, wide", "wide", ""),
}
WANTED: dict[Operator, tuple[str, ...]] = {
    Operator.LESS: ("16", "n"),
    Operator.AT_MOST: ("16", "n"),
    Operator.MORE: ("9", "n"),
    Operator.AT_LEAST: ("16", "n"),
    Operator.VERSION: ("~> 1.2", ">= 1.2, < 2", ">= 1.3.0-a"),
    Operator.SEMVER: (">= 1.2.4", "< 2"),
    Operator.REGEXP: ("^1", "[sx]+", "d$|m", "a.*y"),
    Operator.CONTAINS: ("wide", "fast"),
    Operator.CONTAINS_ANY: ("wide", "fast", "16"),
}
"""What is asked with the operators that do not name whole values."""
TAINTS = (Taint(key="dedicated", value="ml"), Taint(key="dedicated", value="web"), Taint(key="old"))
TOLERATIONS = (
    Toleration(key="dedicated"),
    Toleration(key="dedicated", value="ml"),
    Toleration(key="old", value=""),
)


@dataclass(frozen=True)
class World:
    """A fleet, a queue, and which shapes which clusters have refused."""

    seed: int
    fleet: Fleet
    pending: tuple[PendingTask, ...]
    cooling: dict[str, frozenset[str]]


class _Dice:
    """Chance with a style of its own: how often this world's machines and tasks are special."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.specials = self.rng.choice([0.0, 0.1, 0.3])
        self.services = self.rng.choice([0.0, 0.5, 1.0])
        self.domains = self.rng.choice([0.0, 0.0, 0.3])

    def special(self) -> bool:
        return self.rng.random() < self.specials

    def some(self, *names: str) -> tuple[str, ...]:
        if not self.special():
            return ()
        return tuple(self.rng.sample(names, self.rng.randint(1, len(names))))


def world_of(seed: int) -> World:
    """At most 8 machines, 4 shapes and 20 tasks."""
    dice = _Dice(seed)
    rng = dice.rng
    kinds = [_capacity(rng) for _ in range(rng.randint(1, 2))]
    machines = tuple(_machine(dice, f"m{n}", rng.choice(kinds)) for n in range(rng.randint(0, 8)))
    shapes = [(_asked(rng), _constraints(dice)) for _ in range(rng.randint(1, 4))]
    pending = tuple(_pending(rng, n, *rng.choice(shapes)) for n in range(rng.randint(0, 20)))
    cooling = {task.shape: frozenset({"c1"}) for task in pending if dice.special()}
    clusters = {"c1": True, "c2": not dice.special()}
    return World(seed, Fleet(machines=machines, clusters=clusters, revision=1), pending, cooling)


def worlds() -> st.SearchStrategy[World]:
    """Worlds by their number."""
    return st.integers(0, 2**48 - 1).map(world_of)


def _capacity(rng: random.Random) -> tuple[int, int, int, int, int]:
    gpu = rng.choice([0, 0, 2])
    return (rng.randint(1, 10) * 500, rng.randint(1, 8) * 512, gpu, 400, 40)


def _machine(dice: _Dice, name: str, capacity: tuple[int, int, int, int, int]) -> MachineStanding:
    rng = dice.rng
    # Claims may hold more than there is: capacity can shrink under them.
    used = (rng.randint(0, 2) * 500, 0, 3 if dice.special() else 0, 0, 0)
    beside = []
    while rng.random() < dice.services / 2:
        shuns = tuple(rng.sample(SERVICES, rng.randint(0, 2)))
        if dice.domains and rng.random() < 0.3:
            shuns += (f"{rng.choice(SERVICES)}@{rng.choice(OVERS)}",)
        beside.append(Beside(rng.choice(TEAMS), rng.choice(SERVICES), shuns, rng.randint(1, 2)))
    return MachineStanding(
        cluster=rng.choice(CLUSTERS),
        name=name,
        zone=rng.choice(ZONES) if rng.random() < 0.9 else "",
        rack=rng.choice(RACKS) if rng.random() < 0.9 else "",
        labels={key: rng.choice(values) for key, values in LABELS.items() if rng.random() < 0.7},
        taints=tuple(taint for taint in TAINTS if dice.special()),
        capacity=capacity,
        used=used,
        cordoned=dice.special(),
        reachable=not dice.special(),
        capacity_extra=rng.choice([{}, {"fpga": 2}]),
        used_extra=rng.choice([{}, {}, {"fpga": 1}]),
        beside=tuple(beside),
    )


def _asked(rng: random.Random) -> Resources:
    return Resources(
        cpu_milli=rng.randint(1, 5) * 500,
        memory_mib=rng.randint(1, 4) * 512,
        gpu=rng.choice([0, 0, 0, 1]),
        disk_mib=rng.choice([0, 0, 100]),
        net_mbps=rng.choice([0, 0, 10]),
        extra=rng.choice([{}, {}, {}, {}, {"fpga": 1}, {"fpga": 0}, {"fpga": 1, "licence": 1}]),
    )


def _constraints(dice: _Dice) -> Constraints:
    rng = dice.rng
    rules = Constraints(
        clusters=dice.some(*CLUSTERS, "elsewhere"),
        zones=dice.some(*ZONES, "nowhere"),
        labels=tuple(_term(rng) for _ in range(2) if dice.special()),
        tolerations=tuple(one for one in TOLERATIONS if dice.special()),
    )
    if rng.random() >= dice.services:
        return rules
    service = rng.choice([None, *SERVICES])
    shuns = tuple(rng.sample(SERVICES, rng.choice([0, 0, 0, 1, 2])))
    between: dict[str, object] = {"service": service, "anti_affinity": shuns}
    if service is not None:
        between["max_per_machine"] = rng.choice([None, None, 1, 3])
        between["spread"] = rng.choice(list(Spread))
        between["limits"] = _some(dice, lambda over: Limit(over=over, tasks=rng.randint(1, 2)))
        between["even"] = _some(
            dice,
            lambda over: Even(
                over=over,
                max_skew=rng.randint(1, 2),
                min_domains=rng.randint(1, 3),
                required=rng.random() < 0.7,
            ),
        )
    if dice.domains:
        near = [*OVERS, "machine"]
        between["near"] = _some(
            dice,
            lambda over: Near(service=rng.choice(SERVICES), over=over, required=rng.random() < 0.7),
            near,
        )
        between["apart"] = _some(dice, lambda over: Apart(service=rng.choice(SERVICES), over=over))
    return rules.model_copy(update=between)


def _some(
    dice: _Dice, rule: Callable[[str], BaseModel], overs: Sequence[str] = OVERS
) -> tuple[BaseModel, ...]:
    return tuple(rule(over) for over in overs if dice.rng.random() < dice.domains / 2)


def _term(rng: random.Random) -> LabelTerm:
    key, operator = rng.choice(sorted(LABELS)), rng.choice(list(Operator))
    number = {
        Operator.EXISTS: 0,
        Operator.NOT_EXISTS: 0,
        Operator.IN: rng.randint(1, 2),
        Operator.NOT_IN: rng.randint(1, 2),
        Operator.CONTAINS: rng.randint(1, 2),
        Operator.CONTAINS_ANY: rng.randint(1, 2),
    }.get(operator, 1)
    written = rng.sample(WANTED.get(operator, (*LABELS[key], "unheard-of")), number)
    return LabelTerm(key=key, operator=operator, values=tuple(written))


def _pending(
    rng: random.Random, number: int, asked: Resources, constraints: Constraints
) -> PendingTask:
    spec = TaskSpec(
        team=rng.choice(TEAMS),
        id=f"t{number}",
        command=("true",),
        resources=asked,
        constraints=constraints,
        priority=rng.choice([Band.HIGH, Band.NORMAL]),
    )
    return pending_task(spec, enqueued_at=START + timedelta(seconds=rng.randint(0, 3)))
