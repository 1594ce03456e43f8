"""A large round is claimed in parts: all of them, or those that the database took."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Engine

from activities import rounds as rounds_module
from activities.placement import Placement
from activities.rounds import PartitionRounds, batches
from activities.writer import LedgerWriter
from domain.attempt import Phase
from runtime.settings import PlacementSettings
from store.claims import claim_batch
from store.schema import migrate
from store.session import open_engine
from store.tasks import attempts
from tests.store.world import World, a_machine, a_task

TASKS = 8


@pytest.fixture
def world(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Eight tasks and a machine for each, where two wishes are many already."""
    monkeypatch.setattr(rounds_module, "BATCHED_AT_LEAST", 2)
    engine = open_engine(database_url)
    migrate(engine)
    made = World(engine)
    made.cluster("c1", *(a_machine(f"m{n}", cpu_milli=1_000) for n in range(TASKS)))
    for number in range(TASKS):
        made.enqueue(a_task(f"t{number}"))
    yield made
    engine.dispose()


@pytest.fixture
def writer(world: World) -> Iterator[LedgerWriter]:
    """Writes what rounds have to write; no operation of a task comes."""
    made = LedgerWriter(world.engine, cast(Any, None), cast(Any, None))
    made.start()
    yield made
    made.stop()


def rounds_on(engine: Engine) -> PartitionRounds:
    """Of a scheduler that has just started."""
    return PartitionRounds(
        engine=engine, partition=0, compare_every=timedelta(minutes=1), tasks_max=99
    )


def offered(world: World) -> list[str]:
    """The tasks that have a machine."""
    return [f"t{n}" for n in range(TASKS) if world.phase(f"blue/t{n}") is Phase.OFFERED]


async def test_every_part_of_a_round_is_committed(world: World, writer: LedgerWriter) -> None:
    placement = Placement(PlacementSettings(), world.engine, writer, cast(Any, None))
    rounds = rounds_on(world.engine)
    solved = rounds.solve(world.now, seed=1)
    assert len(batches(solved.result.placed)) == 2
    done = await placement._commit(rounds, solved, None)
    assert [one.number for one in done.claimed] == [1] * TASKS
    assert len(offered(world)) == TASKS


async def test_a_part_that_fails_waits_for_the_next_round(
    world: World, writer: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement = Placement(PlacementSettings(), world.engine, writer, cast(Any, None))
    rounds = rounds_on(world.engine)
    solved = rounds.solve(world.now, seed=1)
    stands, fails = batches(solved.result.placed)

    def failing(connection: Any, partition: int, wishes: Any, now: Any) -> Any:
        claimed = claim_batch(connection, partition, wishes, now)
        if wishes[0] == fails[0]:
            raise ConnectionError("the server is gone")
        return claimed

    monkeypatch.setattr(rounds_module, "claim_batch", failing)
    with pytest.raises(ConnectionError):
        await placement._commit(rounds, solved, None)
    assert {f"blue/{name}" for name in offered(world)} == {wish.key for wish in stands}
    monkeypatch.setattr(rounds_module, "claim_batch", claim_batch)
    await placement._commit(rounds, rounds.solve(world.now, seed=2), None)
    assert len(offered(world)) == TASKS
    for number in range(TASKS):
        assert len(world.read(attempts, f"blue/t{number}")) == 1
