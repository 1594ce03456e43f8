"""Several partitions over one fleet: each looks at its slice first, and has the rest after that."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from activities.rounds import Committed, PartitionRounds
from domain.attempt import Phase
from domain.ids import partition_of
from domain.reasons import Reason
from store.session import create_schema, open_engine
from tests.store import world as world_module
from tests.store.world import World, a_machine, a_task

PARTITIONS = 2
MACHINES = 12
TEAMS = [next(t for t in map(str, range(99)) if partition_of(t, PARTITIONS) == p) for p in (0, 1)]
WHOLE = {"cpu_milli": 4_000, "memory_mib": 100}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A ledger in memory with twelve machines, for teams of two partitions."""
    monkeypatch.setattr(world_module, "PARTITIONS", PARTITIONS)
    engine = open_engine("sqlite://")
    create_schema(engine)
    made = World(engine)
    made.cluster("c1", *(a_machine(f"m{number}") for number in range(MACHINES)))
    yield made
    engine.dispose()


def both(world: World) -> list[PartitionRounds]:
    """The rounds of each partition."""
    every = timedelta(minutes=1)
    return [
        PartitionRounds(
            engine=world.engine,
            partition=p,
            partitions=PARTITIONS,
            compare_every=every,
            tasks_max=99,
        )
        for p in range(PARTITIONS)
    ]


def at_once(world: World, rounds: list[PartitionRounds]) -> list[Committed]:
    """Everybody decides before anybody commits."""
    solved = [one.solve(world.now, seed=1) for one in rounds]
    done = []
    for one, wishes in zip(rounds, solved, strict=True):
        done.append(world.do(one.commit, wishes, None, world.now))
        one.settle(wishes, done[-1].claims)
    return done


def lost(done: list[Committed]) -> int:
    """Claims that the ledger refused."""
    return sum(one.number is None for committed in done for one in committed.claimed)


def test_rules_over_racks_count_both_sides_of_the_slice(world: World) -> None:
    world.cluster("c2", *(a_machine(f"r{number}", rack="r") for number in range(MACHINES)))
    near = {"service": "web", "limits": [{"over": "rack", "tasks": 2}]}
    rounds = both(world)
    for number in range(4):
        world.enqueue(a_task(f"t{number}", team=TEAMS[0], constraints=near, resources=WHOLE))
        at_once(world, rounds)
    waiting = [f"t{n}" for n in range(4) if world.phase(f"{TEAMS[0]}/t{n}") is Phase.PENDING]
    assert waiting == ["t2", "t3"]


def test_partitions_that_decide_at_once_do_not_want_the_same_machines(world: World) -> None:
    for team in TEAMS:
        for number in range(3):
            world.enqueue(a_task(f"t{number}", team=team, resources=WHOLE))
    done = at_once(world, both(world))
    assert [len(one.claimed) for one in done] == [3, 3]
    assert lost(done) == 0


def test_a_partition_may_have_every_machine_while_nobody_else_wants_it(world: World) -> None:
    for number in range(MACHINES + 1):
        world.enqueue(a_task(f"t{number:02}", team=TEAMS[0], resources=WHOLE))
        world.later(0.001)
    at_once(world, both(world))
    phases = [world.phase(f"{TEAMS[0]}/t{number:02}") for number in range(MACHINES + 1)]
    assert phases == [*[Phase.OFFERED] * MACHINES, Phase.PENDING]
    verdict = world.task(f"{TEAMS[0]}/t{MACHINES}").verdict
    assert verdict is not None
    assert verdict.verdict.lost == {Reason.NO_ROOM_CPU: MACHINES}


def test_two_that_want_the_last_room_share_it_and_losers_place_no_one_over_capacity(
    world: World,
) -> None:
    wanted = MACHINES - 2
    for team in TEAMS:
        for number in range(wanted):
            world.enqueue(a_task(f"t{number}", team=team, resources=WHOLE))
    rounds = both(world)
    first = at_once(world, rounds)
    assert lost(first) == 2 * wanted - MACHINES  # Each took from the other's slice what it lacked.
    again = at_once(world, rounds)
    assert sum(len(one.claimed) for one in again) == 0
    keys = [f"{team}/t{number}" for team in TEAMS for number in range(wanted)]
    assert sum(world.phase(key) is Phase.OFFERED for key in keys) == MACHINES


def test_a_scheduler_that_was_replaced_while_it_decided_takes_nothing_twice(world: World) -> None:
    """Its successor commits first; what it decided before is then no more than a wish."""
    world.enqueue(a_task("t", team=TEAMS[0], resources=WHOLE))
    former, successor = both(world)[0], both(world)[0]
    stale = former.solve(world.now, seed=1)
    (done,) = at_once(world, [successor])
    late = world.do(former.commit, stale, None, world.now)
    former.settle(stale, late.claims)
    assert [one.number for one in done.claimed] == [1]
    assert [(one.number, one.reason) for one in late.claimed] == [(None, Reason.LOST_RACE)]
    assert world.task(f"{TEAMS[0]}/t").number == 1
