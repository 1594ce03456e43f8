"""A scheduler that restarts while machines are cordoned and full: the ledger is all it needs."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from activities.rounds import PartitionRounds
from domain.attempt import Phase
from domain.reasons import Reason
from store.machines import cordon
from store.overview import machines
from store.session import create_schema, open_engine
from tests.store.world import World, a_machine, a_task, succeeded


@pytest.fixture
def world() -> Iterator[World]:
    """A ledger in memory, with one machine of four cores."""
    engine = open_engine("sqlite://")
    create_schema(engine)
    made = World(engine)
    made.cluster("c1", a_machine())
    yield made
    engine.dispose()


def one_round(world: World) -> None:
    """By a scheduler that has just started: it knows what the ledger tells it."""
    rounds = PartitionRounds(
        engine=world.engine, partition=0, compare_every=timedelta(minutes=1), tasks_max=100
    )
    solved = rounds.solve(world.now, seed=1)
    rounds.settle(solved, world.do(rounds.commit, solved, None, world.now).claims)


def set_cordon(world: World, *, cordoned: bool) -> None:
    """An operator's wish."""
    world.do(cordon, "c1", ("m1",), cordoned=cordoned, by="ann", now=world.now)


def free_cpu_milli(world: World) -> int:
    """What the only machine has left."""
    (machine,) = world.read(machines)
    return machine.capacity.cpu_milli - machine.used.cpu_milli


def test_a_machine_cordoned_while_full_is_neither_overdrawn_nor_forgotten(world: World) -> None:
    """L13"""
    whole = {"cpu_milli": 4_000, "memory_mib": 100}
    for name in ("first", "second"):
        world.enqueue(a_task(name, resources=whole))
        world.later(1)
    one_round(world)
    assert free_cpu_milli(world) == 0
    set_cordon(world, cordoned=True)
    one_round(world)
    verdict = world.task("blue/second").verdict
    assert verdict is not None
    assert set(verdict.verdict.lost) <= {Reason.CORDONED, Reason.NO_ROOM_CPU}
    set_cordon(world, cordoned=False)
    one_round(world)
    assert free_cpu_milli(world) == 0
    world.settle(then=succeeded(), key="blue/first")
    assert free_cpu_milli(world) == 4_000
    one_round(world)
    assert world.phase("blue/second") is Phase.OFFERED
    assert free_cpu_milli(world) == 0
