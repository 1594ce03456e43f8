"""The scheduler dies at any step of a round, and another one takes over.

A point is a statement, or an end of a transaction: what was not committed is gone, and so is all
that the process knew. The names of the points are asserted, so that a new step is a new point.
"""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from activities import rounds as rounds_module
from activities.rounds import PartitionRounds, batches
from domain.attempt import Phase
from store.audit import audit
from store.bell import bell_busy
from store.prepared import Prepared
from store.session import create_schema, open_engine, transaction
from store.tasks import attempts
from tests.store.world import World, a_machine, a_task

TASKS = 6
FITS = 4
"""The others get a verdict."""


class Killed(BaseException):
    """The process is no more: nothing catches it."""


class Points:
    """Counts the steps of a round, and dies at one of them."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed: list[str] = []
        self.fatal: int | None = None
        for name in ("_execute", "run_rows"):
            monkeypatch.setattr(Prepared, name, self._told(getattr(Prepared, name)))
        event.listen(engine, "commit", lambda _: self.reach("commit"))

    def reach(self, name: str) -> None:
        """Another point."""
        self.passed.append(name)
        if self.fatal == len(self.passed) - 1:
            raise Killed(name)

    def _told(self, method: Any) -> Any:
        def reaching(prepared: Prepared, connection: Connection, *given: Any) -> Any:
            words = prepared._for(connection).sql.replace('"', "").split()
            self.reach(" ".join([words[0], *_tables(words)]))
            return method(prepared, connection, *given)

        return reaching


def _tables(words: list[str]) -> list[str]:
    """What a statement reads or writes first."""
    for before in ("INTO", "UPDATE", "FROM"):
        if before in words:
            return [words[words.index(before) + 1].strip("()")]
    return []


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A ledger with more tasks than there is room for."""
    engine = open_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    create_schema(engine)
    made = World(engine)
    made.cluster("c1", *(a_machine(f"m{number}", cpu_milli=2_000) for number in range(2)))
    for number in range(TASKS):
        made.enqueue(a_task(f"t{number}"))
        made.later(0.001)
    yield made
    engine.dispose()


def a_round(world: World, points: Points | None = None) -> None:
    """What `place_round` does, step by step, by a scheduler that has just started."""
    rounds = PartitionRounds(
        engine=world.engine, partition=0, compare_every=timedelta(minutes=1), tasks_max=99
    )

    def seam(name: str) -> None:
        if points is not None:
            points.reach(name)

    with transaction(world.engine) as connection:
        wakes = bell_busy(connection, 0, world.now)
    seam("said to be at work")
    loaded = rounds.load(world.now)
    seam("loaded")
    solved = rounds.decide(loaded, seed=1)
    seam("decided")
    claims = []
    for part in batches(solved.result.placed):
        with transaction(world.engine) as connection:
            claims.append(rounds.claim(connection, part, world.now))
        seam("a part is claimed")
    with transaction(world.engine) as connection:
        rounds.conclude(connection, solved, claims, wakes, world.now)
    seam("concluded")
    rounds.settle(solved, claims)
    seam("settled")


def assert_all_is_well(world: World) -> None:
    """Every task has the one claim that it should have, and no room is held for nothing."""
    assert world.read(audit) == []
    keys = [f"blue/t{number}" for number in range(TASKS)]
    offered = [key for key in keys if world.phase(key) is Phase.OFFERED]
    assert len(offered) == FITS
    for key in offered:
        assert [one.number for one in world.read(attempts, key) if one.holds_room] == [1]
    waiting = [world.task(key) for key in keys if key not in offered]
    assert all(view.verdict is not None and view.number == 0 for view in waiting)


def test_a_scheduler_may_die_at_any_step_of_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    monkeypatch.setattr(rounds_module, "BATCHED_AT_LEAST", 2)
    points = Points(world.engine, monkeypatch)
    world.audited = False
    kept = _kept(world, tmp_path)
    a_round(world, points)
    steps = list(points.passed)
    assert_all_is_well(world)
    assert len(steps) >= 20, steps
    assert {"loaded", "decided", "a part is claimed", "INSERT claim", "UPDATE task"} <= set(steps)
    for fatal, step in enumerate(steps):
        again = _copy(world, kept, fatal)
        event.listen(again.engine, "commit", lambda _: points.reach("commit"))
        points.passed, points.fatal = [], fatal
        with pytest.raises(Killed, match=step):
            a_round(again, points)
        points.fatal = None
        assert again.read(audit) == []
        a_round(again)
        assert_all_is_well(again)
        again.engine.dispose()


def _kept(world: World, folder: Path) -> Path:
    """The ledger as it is now, in a file."""
    kept = folder / "kept.db"
    with world.engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        driver.rollback()
        driver.execute("VACUUM INTO ?", (str(kept),))
    return kept


def _copy(world: World, kept: Path, number: int) -> World:
    """A world that begins with that ledger."""
    file = shutil.copy(kept, kept.with_name(f"copy{number}.db"))
    engine = open_engine(f"sqlite:///{file}")
    return World(engine, now=world.now, beats=dict(world.beats), audited=False)
