"""Enqueue: a row is made once, and says afterwards where it stands."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from domain.attempt import Phase
from domain.claims import Enqueue, Enqueued
from domain.reasons import Reason
from domain.retry import Spent
from domain.task import body_digest
from domain.views import EventKind
from store.ledger import apply
from store.overview import phase_counts
from store.session import transaction
from store.tasks import task
from store.waiting import pending
from tests.store.world import FAILED, World, a_machine, a_task, succeeded


def test_a_new_task_waits_and_its_partition_is_rung(world: World) -> None:
    done = world.apply(Enqueue(spec=a_task(), digest="d", at=world.now))
    assert done.answers == [Enqueued(closed=0)]
    assert done.rings == {0}
    assert world.phase() is Phase.PENDING
    assert [row.key for row in world.read(pending, 0, world.now, 10)] == ["blue/t"]


def test_asked_again_it_changes_nothing(world: World) -> None:
    world.enqueue()
    assert world.enqueue() == Enqueued(closed=0)
    assert world.story() == [EventKind.ENQUEUED]


def test_the_same_key_with_another_body_is_a_conflict(world: World) -> None:
    world.enqueue()
    refusal = world.enqueue(a_task(command=("false",))).refusal
    assert refusal is not None
    assert refusal.code == "conflict"
    assert world.task().spec.command == ("true",)


def test_two_bodies_for_one_key_in_one_transaction_make_one_task(world: World) -> None:
    specs = [a_task(), a_task(command=("false",))]
    both = [Enqueue(spec=s, digest=body_digest(s), at=world.now) for s in specs]
    first, second = world.apply(*both).answers
    assert isinstance(first, Enqueued)
    assert isinstance(second, Enqueued)
    assert first.refusal is None
    assert second.refusal is not None


def test_a_task_that_no_machine_could_ever_hold_is_refused_with_the_reasons(world: World) -> None:
    world.cluster("c1", a_machine("m1"), a_machine("m2"), a_machine("m3", zone="z"))
    refusal = world.enqueue(a_task(resources={"cpu_milli": 4_001})).refusal
    assert refusal is not None
    assert refusal.code == "never_fits"
    assert refusal.lost == {Reason.NO_ROOM_CPU: 3}
    assert "4000 < 4001" in refusal.message
    assert world.read(task, "blue/t") is None


def test_an_empty_fleet_refuses_nothing(world: World) -> None:
    assert world.enqueue(a_task(resources={"cpu_milli": 10_000_000})).refusal is None


def test_silent_and_cordoned_machines_count_for_what_could_ever_fit(world: World) -> None:
    world.cluster()
    world.beat("c1", states=[{"machine": "m1", "reachable": False}])
    assert world.enqueue(a_task(resources={"cpu_milli": 4_000})).refusal is None
    assert world.enqueue(a_task("t2", resources={"cpu_milli": 4_001})).refusal is not None


def test_a_machine_that_grew_makes_room_for_what_was_refused(world: World) -> None:
    world.cluster()
    big = a_task(resources={"cpu_milli": 8_000})
    assert world.enqueue(big).refusal is not None
    world.beat("c1", a_machine(cpu_milli=8_000))
    assert world.enqueue(big).refusal is None
    world.beat("c1", a_machine(cpu_milli=2_000))
    assert world.enqueue(a_task("t2", resources={"cpu_milli": 4_000})).refusal is not None


def test_a_final_row_answers_with_its_outcome(world: World) -> None:
    world.cluster()
    world.running()
    world.settle(then=succeeded())
    answer = world.enqueue()
    assert answer.final == succeeded().outcome
    assert answer.closed == 1
    assert world.phase() is Phase.SUCCEEDED


def test_a_live_number_is_adopted_and_its_agent_asked(world: World) -> None:
    world.cluster()
    world.running()
    answer = world.enqueue()
    assert answer.live is not None
    assert (answer.closed, answer.live.number, answer.live.admitted) == (0, 1, True)
    assert (answer.live.cluster, answer.live.machine) == ("c1", "m1")


def test_a_new_run_learns_the_budgets_already_spent(world: World) -> None:
    world.cluster()
    world.running()
    world.settle(FAILED)
    answer = world.enqueue()
    assert answer.spent == Spent(failures=1)
    assert answer.closed == 1


def test_a_row_enqueued_under_a_clock_that_runs_ahead_is_due_at_once(world: World) -> None:
    world.enqueue(at=world.now + timedelta(seconds=3))
    assert len(world.read(pending, 0, world.now, 10)) == 1


def test_more_important_tasks_wait_in_front_then_older_ones(world: World) -> None:
    for task_id, priority in (("a", "LOW"), ("b", "NORMAL"), ("c", "NORMAL"), ("d", "HIGH")):
        world.enqueue(a_task(task_id, priority=priority))
        world.later(1)
    assert [row.key[-1] for row in world.read(pending, 0, world.now, 3)] == ["d", "b", "c"]


@pytest.mark.parametrize("threads", [50])
def test_many_at_once_with_one_key_make_one_task(engine: Engine, threads: int) -> None:
    world = World(engine)

    def ask(body: int) -> Enqueued:
        spec = a_task(command=("true", str(body % 2)))
        ask = Enqueue(spec=spec, digest=body_digest(spec), at=world.now)
        with transaction(engine) as connection:
            answer = apply(connection, [ask], partitions=1, now=world.now).answers[0]
        assert isinstance(answer, Enqueued)
        return answer

    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(ask, range(threads)))
    refused = [answer.refusal.code for answer in answers if answer.refusal]
    assert refused == ["conflict"] * (threads // 2)
    assert world.read(phase_counts)[Phase.PENDING] == 1
    assert world.story() == [EventKind.ENQUEUED]
