"""More rows wait than one round looks at: nothing hides behind what finds no machine."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from activities.rounds import Committed, PartitionRounds
from domain.attempt import Phase
from store.session import create_schema, open_engine
from tests.store.world import World, a_machine, a_task, succeeded

PAGE = 3
LARGE = {"cpu_milli": 8_000, "memory_mib": 100}


@pytest.fixture
def world() -> Iterator[World]:
    """A ledger in memory, with one machine of four cores that is known to be able to hold more."""
    engine = open_engine("sqlite://")
    create_schema(engine)
    made = World(engine)
    made.cluster("c1", a_machine("small"), a_machine("large", cpu_milli=8_000))
    yield made
    engine.dispose()


def rounds(world: World) -> PartitionRounds:
    """Rounds that look at three rows each."""
    return PartitionRounds(
        engine=world.engine, partition=0, compare_every=timedelta(minutes=1), tasks_max=PAGE
    )


def one_round(world: World, of: PartitionRounds) -> Committed:
    """Solve and commit."""
    solved = of.solve(world.now, seed=1)
    done = world.do(of.commit, solved, None, world.now)
    of.settle(solved, done.claims)
    return done


def test_a_block_that_finds_no_machine_does_not_hide_the_rows_behind_it(world: World) -> None:
    """L15"""
    world.enqueue(a_task("holder", resources=LARGE))
    world.claim("blue/holder", "large")
    for number in range(2 * PAGE):
        world.enqueue(a_task(f"large-{number}", resources=LARGE))
        world.later(0.001)
    world.enqueue(a_task("small"))
    looking = rounds(world)
    rounds_made = 1
    while one_round(world, looking).again:
        rounds_made += 1
    assert rounds_made == 2
    assert world.phase("blue/small") is Phase.OFFERED


def test_after_a_sweep_the_next_round_begins_at_the_front(world: World) -> None:
    world.enqueue(a_task("holder", resources=LARGE))
    world.claim("blue/holder", "large")
    for number in range(2 * PAGE):
        world.enqueue(a_task(f"large-{number}", resources=LARGE))
        world.later(0.001)
    looking = rounds(world)
    while one_round(world, looking).again:
        pass
    world.settle(key="blue/holder", then=succeeded())
    one_round(world, looking)
    assert world.phase("blue/large-0") is Phase.OFFERED
