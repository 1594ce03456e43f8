"""Agents' lists against claims: what runs without a claim, what does not run, and what is done."""

import pytest
from sqlalchemy import text

from domain.attempt import Phase, StopCause
from domain.audit import Fault, Roll, RollAnswer, RollCall
from domain.ids import attempt_hash
from domain.protocol import Inquiry, Order, Orphan, RunningDigest, StopOrder
from domain.views import EventKind
from store.audit import audit
from store.clusters import mark_suspect
from store.differences import begin_run, counts, end_run, report
from store.digests import DOUBT_AFTER_S
from store.losses import orphan
from store.orders import orders
from store.rolls import Comparison, agents_agree, compare, roll_calls
from store.session import transaction
from tests.store.test_clusters import used_cpu
from tests.store.world import EXITED, STOPPED, World, a_task

OLD_S = DOUBT_AFTER_S + 1
KEY, ATTEMPT = "blue/t", "blue/t#1"


def digest(*attempts: str, machine: str = "m1") -> RunningDigest:
    """What an agent counts that holds these."""
    xor = 0
    for attempt in attempts:
        xor ^= attempt_hash(attempt)
    return RunningDigest(machine=machine, count=len(attempts), xor=xor)


def looks(world: World, *listed: str, again_listed: tuple[str, ...] | None = None) -> Comparison:
    """One audit: the agent lists these, and a little later these (or the same)."""
    run = world.do(begin_run, world.now)
    world.do(compare, run, "c1", answer(world, listed), world.now, again=False)
    world.later(5)
    second = answer(world, listed if again_listed is None else again_listed)
    done = world.do(compare, run, "c1", second, world.now, again=True)
    world.do(agents_agree, run, world.now)
    world.do(end_run, run, 1, 0, world.now)
    return done


def answer(world: World, listed: tuple[str, ...], epoch: int | None = None) -> RollAnswer:
    """The agent's, under the present epoch."""
    now = world.do(orders, "c1")[0] if epoch is None else epoch
    return RollAnswer(instance="c1-1", epoch=now, rolls=(Roll(machine="m1", attempts=listed),))


def ordered(world: World) -> list[Order]:
    """What the agent is told."""
    return world.do(orders, "c1")[1]


def count(world: World, fault: Fault) -> tuple[int, int, int]:
    """Found, healed, standing."""
    one = world.read(counts)[fault]
    return one.found, one.healed, one.standing


def ended(world: World) -> None:
    """A task whose first attempt has ended for the ledger, long ago."""
    world.cluster()
    world.running()
    world.settle(EXITED)
    world.later(OLD_S)


# --- whose lists are wanted -----------------------------------------------------------------------


def test_a_machine_that_runs_more_than_the_claims_say_is_doubted(memory: World) -> None:
    memory.cluster()
    assert memory.read(roll_calls) == ()
    memory.beat(running=(digest("blue/ghost#1"),))
    assert memory.read(roll_calls) == (RollCall(cluster="c1", machines=("m1",)),)
    memory.beat(running=(digest(),))
    assert memory.read(roll_calls) == ()


def test_what_is_under_way_makes_no_doubt(memory: World) -> None:
    memory.cluster()
    memory.running()
    memory.beat(running=(digest(),))  # Just admitted; the digest is older than that.
    memory.enqueue(a_task("u"))
    memory.claim("blue/u")
    memory.beat(running=(digest(ATTEMPT, "blue/u#1"),))  # Admitted, and its answer on the way.
    assert memory.read(roll_calls) == ()


def test_one_attempt_too_many_is_seen_even_where_there_is_always_something_under_way(
    memory: World,
) -> None:
    memory.cluster()
    memory.running()
    memory.beat(running=(digest(ATTEMPT, "blue/ghost#1"),))
    assert len(memory.read(roll_calls)) == 1


def test_a_digest_of_a_machine_that_is_not_known_yet_is_left_alone(memory: World) -> None:
    memory.cluster()
    memory.beat(running=(digest("blue/ghost#1", machine="m9"),))
    assert memory.read(roll_calls) == ()


def test_a_cluster_out_of_reach_is_not_asked(memory: World) -> None:
    memory.cluster()
    memory.beat(running=(digest("blue/ghost#1"),))
    memory.do(mark_suspect, "c1", 1, memory.now)
    assert memory.read(roll_calls) == ()


# --- an attempt without a claim -------------------------------------------------------------------


def test_an_attempt_without_a_claim_is_stopped_and_its_ending_releases_it(world: World) -> None:
    ended(world)
    world.beat(running=(digest(ATTEMPT),))
    done = looks(world, ATTEMPT)
    assert done.clusters == {"c1"}
    (stands,) = world.read(report).standing
    assert (stands.fault, stands.subject) == (Fault.RUNS_WITHOUT_CLAIM, ATTEMPT)
    # Its room is accounted for as long as it runs, and nobody pays for it.
    assert used_cpu(world) == 1_000
    assert [(o.key, o.number) for o in ordered(world) if isinstance(o, StopOrder)] == [(KEY, 1)]
    world.answer("stop", "taken")
    late = Orphan(key=KEY, number=1, machine="m1", ending=STOPPED, at=world.now)
    world.do(orphan, "c1", late, world.now)
    assert used_cpu(world) == 0
    world.beat(running=(digest(),))
    looks(world)
    assert count(world, Fault.RUNS_WITHOUT_CLAIM) == (1, 1, 0)
    assert world.story()[-3:] == [EventKind.STOP_ORDERED, EventKind.MENDED, EventKind.LATE]


def test_what_has_ended_between_the_two_lists_is_left_alone(memory: World) -> None:
    ended(memory)
    looks(memory, ATTEMPT, again_listed=())
    assert ordered(memory) == []
    assert count(memory, Fault.RUNS_WITHOUT_CLAIM) == (0, 0, 0)


def test_what_was_claimed_between_the_two_lists_is_left_alone(memory: World) -> None:
    ended(memory)
    run = memory.do(begin_run, memory.now)
    memory.do(compare, run, "c1", answer(memory, ()), memory.now, again=False)
    assert memory.claim() == 2
    memory.admit(number=2)
    memory.do(compare, run, "c1", answer(memory, ("blue/t#2",)), memory.now, again=True)
    assert ordered(memory) == []
    assert memory.phase() is Phase.RUNNING
    assert count(memory, Fault.RUNS_WITHOUT_CLAIM) == (0, 0, 0)


def test_a_list_of_an_older_epoch_proves_nothing(memory: World) -> None:
    ended(memory)
    run = memory.do(begin_run, memory.now)
    memory.grant()
    old = answer(memory, (ATTEMPT,), epoch=1)
    memory.do(compare, run, "c1", old, memory.now, again=False)
    memory.do(compare, run, "c1", old, memory.now, again=True)
    assert ordered(memory) == []


def test_a_running_attempt_beyond_what_the_ledger_knows_is_claimed_again(world: World) -> None:
    """As after a ledger that was taken back to an earlier day."""
    world.cluster()
    world.enqueue()
    looks(world, "blue/t#4")
    task = world.task()
    assert (task.phase, task.number, task.machine) == (Phase.RUNNING, 4, "m1")
    assert [type(order) for order in ordered(world)] == [Inquiry]
    assert world.settle(EXITED, number=4).mine
    assert world.claim() == 5


def test_while_another_number_is_claimed_nothing_is_done(memory: World) -> None:
    memory.cluster()
    memory.running()
    memory.later(OLD_S)
    looks(memory, ATTEMPT, "blue/t#4")
    (stands,) = memory.read(report).standing
    assert "claimed as well" in stands.healing
    assert ordered(memory) == []
    assert memory.phase() is Phase.RUNNING


def test_an_attempt_of_a_task_that_nobody_knows_is_named_for_its_workflow(memory: World) -> None:
    memory.cluster()
    done = looks(memory, "blue/ghost#3")
    assert [(o.key, o.number, o.cause) for o in done.unknown] == [
        ("blue/ghost", 3, StopCause.WORKFLOW_GONE)
    ]
    assert count(memory, Fault.RUNS_WITHOUT_CLAIM) == (1, 0, 1)


def test_a_closed_number_without_any_claim_is_stopped_by_an_order_of_its_own(
    memory: World,
) -> None:
    ended(memory)
    memory.audited = False
    with transaction(memory.engine) as connection:
        connection.execute(text("DELETE FROM claim"))
    done = looks(memory, ATTEMPT)
    assert [(o.key, o.number, o.machine) for o in done.stops] == [(KEY, 1, "m1")]
    assert done.unknown == ()


# --- a claim without an attempt -------------------------------------------------------------------


def test_a_claim_that_is_not_listed_for_long_is_asked_about_and_never_released(
    world: World,
) -> None:
    world.cluster()
    world.running()
    world.later(OLD_S)
    looks(world)
    assert count(world, Fault.CLAIM_NOT_RUNNING) == (0, 0, 0)  # Its report may be on the way.
    world.later(OLD_S)
    looks(world)
    assert [type(order) for order in ordered(world)] == [Inquiry]
    assert used_cpu(world) == 1_000
    assert count(world, Fault.CLAIM_NOT_RUNNING) == (1, 0, 1)
    world.answer("inquiry", "taken")
    world.settle(EXITED)
    looks(world)
    assert count(world, Fault.CLAIM_NOT_RUNNING) == (1, 1, 0)


@pytest.mark.parametrize("listed", [(), (ATTEMPT,)])
def test_a_young_claim_is_not_judged(memory: World, listed: tuple[str, ...]) -> None:
    memory.cluster()
    memory.running()
    looks(memory, *listed)
    memory.later(OLD_S - 20)
    looks(memory, *listed)
    assert ordered(memory) == []
    assert memory.read(audit) == []
