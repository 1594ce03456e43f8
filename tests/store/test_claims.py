"""The claim transaction: room, quota and number together, never more than there is."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from domain.claims import Enqueue, Finish, Settle
from domain.fleet import ClaimResult, Proposal
from domain.protocol import Offer
from domain.reasons import Reason
from domain.task import body_digest
from store.audit import audit
from store.claims import claim
from store.clusters import mark_suspect
from store.ledger import apply
from store.machines import cordon
from store.orders import orders
from store.overview import machine, team_usage
from store.session import reading, transaction
from store.tasks import attempts
from store.waiting import pending
from tests.store.world import EXITED, World, a_machine, a_task, succeeded


def test_a_claim_mints_the_number_charges_the_team_and_takes_the_room(world: World) -> None:
    world.cluster()
    world.enqueue()
    assert world.claim() == 1
    view = world.read(machine, "c1", "m1")
    assert view is not None
    assert (view.used.cpu_milli, view.used.memory_mib) == (1_000, 100)
    usage = world.read(team_usage)[0]
    assert (usage.team, usage.used.cpu_milli) == ("blue", 1_000)
    _, asked = world.do(orders, "c1")
    assert asked == [Offer(key="blue/t", number=1, machine="m1", spec=a_task())]


def test_in_one_batch_the_room_goes_to_the_first_proposed(world: World) -> None:
    world.cluster("c1", a_machine(cpu_milli=2_500))
    for task_id in "abcd":
        world.enqueue(a_task(task_id))
    world.enqueue(a_task("small", resources={"cpu_milli": 500}))
    names = ("c", "a", "d", "b", "small")
    wishes = [Proposal(f"blue/{name}", "c1", "m1") for name in names]
    results = world.do(claim, 0, wishes, world.now)
    assert results == [
        ClaimResult("blue/c", number=1),
        ClaimResult("blue/a", number=1),
        ClaimResult("blue/d", reason=Reason.LOST_RACE),
        ClaimResult("blue/b", reason=Reason.LOST_RACE),
        ClaimResult("blue/small", number=1),
    ]
    assert {row.key for row in world.read(pending, 0, world.now, 9)} == {"blue/d", "blue/b"}


def test_a_row_is_claimed_once_even_when_proposed_twice(world: World) -> None:
    world.cluster("c1", a_machine("m1"), a_machine("m2"))
    world.enqueue()
    wishes = [Proposal("blue/t", "c1", "m1"), Proposal("blue/t", "c1", "m2")]
    assert [r.number for r in world.do(claim, 0, wishes, world.now)] == [1, None]
    assert world.claim(machine="m2") is None


def test_extra_resources_are_room_too(world: World) -> None:
    world.cluster("c1", a_machine(extra={"licence": 2}))
    ask = {"cpu_milli": 1, "extra": {"licence": 1}}
    for task_id in "abc":
        world.enqueue(a_task(task_id, resources=ask))
    assert [world.claim(f"blue/{task_id}") for task_id in "abc"] == [1, 1, None]
    world.settle(key="blue/a", then=succeeded())
    assert world.claim("blue/c") == 1
    usage = world.read(team_usage)[0]
    assert usage.used.extra == {"licence": 2}


def test_no_claim_on_a_cordoned_silent_or_unknown_machine(world: World) -> None:
    world.cluster("c1", a_machine("m1"), a_machine("m2"))
    world.enqueue()
    world.do(cordon, "c1", ["m1"], cordoned=True, by="ann", now=world.now)
    world.beat(states=[{"machine": "m2", "reachable": False}])
    assert [world.claim(machine=name) for name in ("m1", "m2", "m3")] == [None] * 3
    assert world.claim(cluster="c2") is None
    world.do(cordon, "c1", ["m1"], cordoned=False, by="ann", now=world.now)
    assert world.claim(machine="m1") == 1


def test_no_claim_on_a_suspect_cluster_or_one_without_a_granted_lease(world: World) -> None:
    epoch = world.cluster()
    world.enqueue()
    world.do(mark_suspect, "c1", epoch, world.now)
    assert world.claim() is None
    world.beat()
    assert world.claim() == 1


def test_a_partition_claims_only_its_own_rows(world: World) -> None:
    world.cluster()
    world.enqueue()
    assert world.claim(partition=1) is None
    assert world.claim(partition=0) == 1


def test_numbers_never_fall(world: World) -> None:
    world.cluster()
    world.running()
    for number in range(1, 5):
        assert world.settle(number=number).mine
        world.enqueue()
        assert world.claim() == number + 1
    assert [a.number for a in world.read(attempts, "blue/t")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", [1, 2])
def test_racing_claims_and_settles_never_exceed_what_there_is(engine: Engine, seed: int) -> None:
    """Several threads claim the same few machines in batches and settle them again."""
    print(f"seed {seed}")
    world = World(engine)
    world.cluster("c1", *(a_machine(f"m{i}", cpu_milli=3_000) for i in range(4)))
    specs = [a_task(f"t{i}") for i in range(60)]
    world.apply(*(Enqueue(spec=s, digest=body_digest(s), at=world.now) for s in specs))

    def compete(thread: int) -> int:
        dice = random.Random(seed * 100 + thread)
        ended = 0
        for _ in range(40):
            with reading(engine) as connection:
                waiting = pending(connection, 0, world.now, 60)
            if not waiting:
                break
            some = dice.sample(waiting, min(8, len(waiting)))
            wishes = [Proposal(row.key, "c1", f"m{dice.randrange(4)}") for row in some]
            with transaction(engine) as connection:
                won = [r for r in claim(connection, 0, wishes, world.now) if r.number]
            if won:
                ends = [_success(world, r.key, r.number or 0) for r in won]
                with transaction(engine) as connection:
                    done = apply(connection, ends, partitions=1, now=world.now)
                ended += sum(1 for answer in done.answers if getattr(answer, "mine", False))
        return ended

    with ThreadPoolExecutor(6) as pool:
        ended = sum(pool.map(compete, range(6)))
    assert world.read(audit) == []
    assert ended == len(specs) - len(world.read(pending, 0, world.now, 100))
    assert ended > 0


def _success(world: World, key: str, number: int) -> Settle:
    then = Finish(outcome=succeeded(number).outcome)
    return Settle(key=key, number=number, cluster="c1", ending=EXITED, then=then, at=world.now)


def test_racing_claims_fill_a_machine_exactly(engine: Engine) -> None:
    world = World(engine)
    world.cluster("c1", a_machine(cpu_milli=10_000))
    specs = [a_task(f"t{i}") for i in range(24)]
    world.apply(*(Enqueue(spec=s, digest=body_digest(s), at=world.now) for s in specs))

    def grab(first: int) -> int:
        wishes = [Proposal(spec.key, "c1", "m1") for spec in specs[first::8]]
        with transaction(engine) as connection:
            return sum(1 for r in claim(connection, 0, wishes, world.now) if r.number)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(grab, range(8))) == 10
    assert world.read(audit) == []
