"""Withdraw: a waiting row ends at once; a claimed one is told to stop, and ends with its report."""

from datetime import timedelta

from domain.attempt import Phase, StopCause
from domain.claims import WithdrawAnswer, WithdrawCause
from domain.protocol import Inquiry, StopOrder
from store.orders import orders, request_stop
from store.waiting import expired, next_due
from tests.store.world import World, a_task, cancelled, succeeded


def stops(world: World) -> list[StopCause]:
    """The causes of the stop orders that wait for cluster c1."""
    _, asked = world.do(orders, "c1")
    return [order.cause for order in asked if isinstance(order, StopOrder)]


def test_a_waiting_task_is_cancelled_at_once(world: World) -> None:
    world.enqueue()
    answer = world.withdraw()
    assert (answer.answer, answer.final) == (WithdrawAnswer.WITHDRAWN, cancelled())
    assert world.phase() is Phase.CANCELLED
    assert world.withdraw().answer is WithdrawAnswer.WITHDRAWN
    other = world.withdraw(outcome=cancelled().model_copy(update={"detail": "another"}))
    assert (other.answer, other.final) == (WithdrawAnswer.FINAL, cancelled())


def test_cancelling_a_claimed_task_orders_a_stop_and_ends_nothing(world: World) -> None:
    world.cluster()
    world.running()
    answer = world.withdraw()
    assert answer.answer is WithdrawAnswer.STOPPING
    assert answer.live is not None
    assert answer.live.number == 1
    assert world.phase() is Phase.STOPPING
    assert stops(world) == [StopCause.CANCEL]
    assert world.withdraw().answer is WithdrawAnswer.STOPPING
    assert world.answer("stop", "taken") == 1
    assert stops(world) == []


def test_the_first_cause_of_a_stop_stays_but_a_cancel_overrides_it(world: World) -> None:
    world.cluster()
    world.running()
    assert world.do(request_stop, "blue/t", StopCause.PREEMPT, world.now) == "c1"
    assert world.do(request_stop, "blue/t", StopCause.DRAIN, world.now) is None
    assert world.answer("stop", "taken") == 1
    assert stops(world) == []
    world.withdraw()
    assert stops(world) == [StopCause.CANCEL]
    assert world.do(request_stop, "blue/t", StopCause.PREEMPT, world.now) is None


def test_a_task_that_waits_or_has_ended_has_nothing_to_stop(world: World) -> None:
    world.cluster()
    assert world.do(request_stop, "blue/t", StopCause.DRAIN, world.now) is None
    world.enqueue()
    assert world.do(request_stop, "blue/t", StopCause.DRAIN, world.now) is None
    assert world.phase() is Phase.PENDING


def test_expiry_ends_a_row_past_its_limit_and_no_other(world: World) -> None:
    world.cluster()
    limit = world.now + timedelta(seconds=10)
    world.enqueue(not_after=limit)
    assert world.read(next_due, 0, world.now) == limit
    expire, outcome = WithdrawCause.EXPIRE, cancelled()
    assert world.withdraw(expire, outcome).answer is WithdrawAnswer.NO_EFFECT
    assert world.read(expired, 0, world.now) == []
    world.later(10)
    assert world.read(expired, 0, world.now) == ["blue/t"]
    assert world.withdraw(expire, outcome).answer is WithdrawAnswer.WITHDRAWN
    world.enqueue(a_task("t2"), not_after=world.now)
    world.claim("blue/t2")
    answer = world.withdraw(expire, outcome, key="blue/t2")
    assert answer.answer is WithdrawAnswer.NO_EFFECT
    assert world.phase("blue/t2") is Phase.OFFERED


def test_abandoning_a_claimed_task_ends_it_and_twice_is_as_good(world: World) -> None:
    world.cluster()
    world.running()
    first = world.withdraw(abandon=True)
    assert first.answer is WithdrawAnswer.ABANDONED
    again = world.withdraw(abandon=True)
    assert again.final == first.final
    assert world.phase() is Phase.CANCELLED


def test_a_late_success_ends_a_waiting_task_and_stops_a_replacement(world: World) -> None:
    world.cluster()
    late, outcome = WithdrawCause.LATE_SUCCESS, succeeded().outcome
    world.enqueue()
    assert world.withdraw(late, outcome).final == outcome
    world.running(a_task("t2"))
    answer = world.withdraw(late, outcome, key="blue/t2")
    assert answer.answer is WithdrawAnswer.STOPPING
    assert stops(world) == [StopCause.SUPERSEDED]


def test_an_unknown_task_has_nothing_to_withdraw(world: World) -> None:
    assert world.withdraw().answer is WithdrawAnswer.NO_EFFECT


def test_an_inquiry_comes_after_the_stop_order(world: World) -> None:
    world.cluster()
    world.running()
    world.withdraw()
    world.enqueue()
    assert stops(world) == [StopCause.CANCEL]
    assert world.answer("stop", "taken") == 1
    _, asked = world.do(orders, "c1")
    assert asked == [Inquiry(key="blue/t", number=1, machine="m1")]
    assert world.answer("inquiry", "taken") == 1
    assert world.do(orders, "c1")[1] == []
