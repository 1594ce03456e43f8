"""A round does not read back what it did itself, and misses nothing that others did."""

import random
from collections.abc import Iterator
from datetime import timedelta

import pytest

from activities import rounds as rounds_module
from activities.rounds import PartitionRounds, batches
from domain.attempt import Phase
from domain.fleet import Proposal
from domain.machine import MachineReport
from placement.index import MachineId
from store.columns import changed_columns
from store.machines import cordon
from store.session import create_schema, open_engine
from tests.store.world import World, a_machine, a_task, succeeded

MACHINES = [f"m{number}" for number in range(6)]
STEPS = 60


@pytest.fixture
def world() -> Iterator[World]:
    """A ledger in memory with six machines."""
    engine = open_engine("sqlite://")
    create_schema(engine)
    made = World(engine)
    made.cluster("c1", *(a_machine(name) for name in MACHINES))
    yield made
    engine.dispose()


def rounds(world: World) -> PartitionRounds:
    """Of a scheduler that has just started, and that never compares in full."""
    return PartitionRounds(
        engine=world.engine, partition=0, compare_every=timedelta(days=1), tasks_max=99
    )


def one_round(
    world: World,
    of: PartitionRounds,
    *,
    fails: bool = False,
    meanwhile: MachineReport | None = None,
) -> None:
    """Solve and commit, or solve and be told that the database is away."""
    solved = of.solve(world.now, seed=1)
    if meanwhile is not None:
        world.beat("c1", meanwhile)
    claims = () if fails else world.do(of.commit, solved, None, world.now).claims
    of.settle(solved, claims)


def report(dice: random.Random) -> MachineReport:
    """An agent finds that some machine has other capacity now."""
    return a_machine(dice.choice(MACHINES), cpu_milli=dice.randrange(4, 9) * 1_000)


def view(of: PartitionRounds) -> dict[str, tuple[object, ...]]:
    """What its index thinks of each machine."""
    index = of.index.index_of("m0")
    slots = {name: index.slot(MachineId("c1", name)) for name in MACHINES}
    return {
        name: (*index.free[:, slot].tolist(), bool(index.cordoned[slot]))
        for name, slot in slots.items()
    }


def unread(world: World, of: PartitionRounds) -> list[str]:
    """The machines whose rows it would read now."""
    changes = world.read(changed_columns, of.revision, of.echoes.known)
    return sorted(changes.machines.name)


def test_what_only_this_partition_has_claimed_is_not_read_back(world: World) -> None:
    mine = rounds(world)
    for number in range(3):
        world.enqueue(a_task(f"t{number}"))
        one_round(world, mine)
    assert unread(world, mine) == []
    assert view(mine) == view_afresh(world)


def test_a_change_just_before_the_own_claim_is_not_hidden_by_it(world: World) -> None:
    """The claim is the last to have written the row; what came before must be read all the same."""
    mine = rounds(world)
    world.enqueue()
    solved = mine.solve(world.now, seed=1)
    (wish,) = solved.result.placed
    grown = a_machine(wish.machine, cpu_milli=64_000)
    world.beat("c1", grown)
    mine.settle(solved, world.do(mine.commit, solved, None, world.now).claims)
    assert unread(world, mine) == [wish.machine]
    one_round(world, mine)
    assert view(mine) == view_afresh(world)


def view_afresh(world: World) -> dict[str, tuple[object, ...]]:
    """What a scheduler thinks that starts now."""
    fresh = rounds(world)
    fresh.load(world.now)
    return view(fresh)


def test_when_one_part_of_a_round_is_not_committed_the_others_stand(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "BATCHED_AT_LEAST", 2)
    mine = rounds(world)
    for number in range(12):
        world.enqueue(a_task(f"t{number:02}"))
    solved = mine.solve(world.now, seed=1)
    stands, fails = batches(solved.result.placed)
    mine.settle(solved, [world.do(mine.claim, stands, world.now)])
    assert view(mine) == view_afresh(world)
    one_round(world, mine)
    assert all(world.phase(wish.key) is Phase.OFFERED for wish in (*stands, *fails))
    assert view(mine) == view_afresh(world)


def test_parts_of_a_round_have_no_machine_in_common_and_are_about_as_large() -> None:
    dice = random.Random(1)
    wishes = [Proposal(f"blue/t{n}", "c1", f"m{dice.randrange(300)}") for n in range(2_000)]
    parts = batches(wishes)
    assert sorted(wish.key for part in parts for wish in part) == sorted(w.key for w in wishes)
    machines = [{wish.machine for wish in part} for part in parts]
    assert not machines[0] & machines[1]
    assert abs(len(parts[0]) - len(parts[1])) < 200
    assert [len(part) for part in batches(wishes[:999])] == [999]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_happens_beside_it_the_index_equals_one_loaded_anew(
    world: World, seed: int
) -> None:
    print(f"seed {seed}")
    dice = random.Random(seed)
    mine, other = rounds(world), rounds(world)
    running: list[str] = []
    for step in range(STEPS):
        world.later(0.1)
        what = dice.choice(["task", "task", "other", "failed", "ended", "report", "cordon"])
        if what in ("task", "other", "failed"):
            name = f"t{step}"
            world.enqueue(a_task(name, resources={"cpu_milli": dice.randrange(1, 900)}))
            told = report(dice) if dice.random() < 0.5 else None
            who = other if what == "other" else mine
            one_round(world, who, fails=what == "failed", meanwhile=told)
            if world.task(f"blue/{name}").number:
                running.append(name)
        elif what == "ended" and running:
            world.settle(key=f"blue/{running.pop(0)}", then=succeeded())
        elif what == "report":
            world.beat("c1", report(dice))
        else:
            on = bool(dice.randrange(2))
            machine = dice.choice(MACHINES)
            world.do(cordon, "c1", [machine], cordoned=on, by="ann", now=world.now)
        if dice.random() < 0.5:
            mine.load(world.now)
            assert view(mine) == view_afresh(world), what
