"""Orders go with every delivery until they are answered; an offer without an answer is stopped."""

from domain.attempt import Phase, StopCause
from domain.protocol import DELIVERY_BYTES_MAX, Offer, Order, OrderAnswer, StopOrder
from domain.views import EventKind
from store.orders import apply_answers, orders, stop_unanswered_offers, undelivered
from tests.store.world import World, a_machine, a_task, succeeded

DEADLINE_S = 15


def asked(world: World, cluster: str = "c1") -> list[Order]:
    """The orders that the next delivery would hold."""
    return world.do(orders, cluster)[1]


def offered(world: World) -> None:
    """A task whose offer was left out of the answer to a delivery that held it."""
    world.cluster()
    world.enqueue()
    world.claim()
    leave_out(world, "blue/t#1")


def leave_out(world: World, *attempts: str) -> None:
    """A delivery succeeds, and its answer says nothing of these."""
    epoch, _ = world.do(orders, "c1")
    world.do(apply_answers, "c1", epoch, [], world.now, left_out=attempts)


def stop_late(world: World, *, succeed: bool = True) -> int:
    """What is done before each delivery."""
    return world.do(stop_unanswered_offers, "c1", world.now, DEADLINE_S, deliveries_succeed=succeed)


def test_an_offer_is_delivered_until_it_is_answered(world: World) -> None:
    offered(world)
    offer = Offer(key="blue/t", number=1, machine="m1", spec=a_task())
    assert asked(world) == asked(world) == [offer]
    assert world.do(undelivered, "c1")
    assert world.admit() == 1
    assert asked(world) == []
    assert not world.do(undelivered, "c1")
    assert world.phase() is Phase.RUNNING
    assert world.admit() == 0


def test_a_refused_offer_waits_for_its_report(world: World) -> None:
    offered(world)
    assert world.answer("offer", "refused") == 1
    assert asked(world) == []
    assert world.phase() is Phase.OFFERED
    assert world.story()[-1] is EventKind.REFUSED


def test_an_answer_of_an_older_epoch_says_nothing(world: World) -> None:
    offered(world)
    world.grant()
    word = OrderAnswer(key="blue/t", number=1, order="offer", answer="admitted")
    assert world.do(apply_answers, "c1", 1, [word], world.now) == 0
    assert world.do(apply_answers, "c1", 2, [word], world.now) == 1


def test_a_stale_answer_leaves_the_order_to_come_again(world: World) -> None:
    offered(world)
    assert world.answer("offer", "stale") == 0
    assert len(asked(world)) == 1


def test_answers_about_another_clusters_attempts_change_nothing(world: World) -> None:
    offered(world)
    world.cluster("c2", a_machine("m9"))
    assert world.admit(cluster="c2") == 0
    assert world.phase() is Phase.OFFERED


def test_an_offer_without_an_answer_for_too_long_becomes_a_stop_order(world: World) -> None:
    offered(world)
    world.later(14)
    assert stop_late(world) == 0
    world.later(1)
    assert stop_late(world) == 1
    assert stop_late(world) == 0
    stop = StopOrder(
        key="blue/t", number=1, machine="m1", cause=StopCause.OFFER_UNANSWERED, grace_s=30
    )
    assert asked(world) == [stop]
    assert world.phase() is Phase.STOPPING


def test_an_offer_that_no_delivery_has_carried_yet_is_not_unanswered(world: World) -> None:
    """L19: in a burst, offers wait behind others for their turn."""
    world.cluster()
    world.answer("inquiry", "taken", key="blue/nothing")
    for name in ("first", "second"):
        world.enqueue(a_task(name))
        world.claim(f"blue/{name}")
        world.later(0.001)
    epoch, _ = world.do(orders, "c1", 1)
    word = OrderAnswer(key="blue/first", number=1, order="offer", answer="admitted")
    world.do(apply_answers, "c1", epoch, [word], world.now)
    world.later(DEADLINE_S)
    assert stop_late(world) == 0
    assert world.phase("blue/second") is Phase.OFFERED
    # A delivery that was lost on its way has asked the agent nothing either.
    assert len(asked(world)) == 1
    world.later(DEADLINE_S)
    assert stop_late(world) == 0
    leave_out(world, "blue/second#1")
    world.later(DEADLINE_S - 1)
    assert stop_late(world) == 0
    world.later(1)
    assert stop_late(world) == 1


def test_only_time_in_which_deliveries_succeed_counts(world: World) -> None:
    offered(world)
    world.later(20)
    assert stop_late(world, succeed=False) == 0
    world.answer("inquiry", "taken", key="blue/nothing")
    world.later(14)
    assert stop_late(world) == 0
    world.later(1)
    assert stop_late(world) == 1


def test_an_admission_before_the_stop_was_sent_withdraws_it(world: World) -> None:
    offered(world)
    # This delivery is under way when the deadline passes.
    epoch, _ = world.do(orders, "c1")
    world.later(DEADLINE_S)
    assert stop_late(world) == 1
    word = OrderAnswer(key="blue/t", number=1, order="offer", answer="admitted")
    assert world.do(apply_answers, "c1", epoch, [word], world.now) == 1
    assert world.phase() is Phase.RUNNING
    assert asked(world) == []
    assert world.story()[-2:] == [EventKind.ADMITTED, EventKind.STOP_WITHDRAWN]


def test_an_admission_after_the_stop_was_sent_leaves_it(world: World) -> None:
    offered(world)
    world.later(DEADLINE_S)
    stop_late(world)
    assert len(asked(world)) == 1
    assert world.admit() == 1
    assert world.phase() is Phase.STOPPING
    assert [order.kind for order in asked(world)] == ["stop"]


def test_an_admission_never_withdraws_a_cancel(world: World) -> None:
    offered(world)
    epoch, _ = world.do(orders, "c1")
    world.withdraw()
    word = OrderAnswer(key="blue/t", number=1, order="offer", answer="admitted")
    world.do(apply_answers, "c1", epoch, [word], world.now)
    assert world.phase() is Phase.STOPPING
    assert [order.kind for order in asked(world)] == ["stop"]


def test_a_taken_stop_order_is_given_again_under_a_new_epoch(world: World) -> None:
    world.cluster()
    world.running()
    world.withdraw()
    asked(world)
    world.answer("stop", "taken")
    assert asked(world) == []
    world.grant()
    assert [order.kind for order in asked(world)] == ["stop"]


def test_a_settled_attempt_has_no_orders(world: World) -> None:
    world.cluster()
    world.running()
    world.withdraw()
    world.settle(then=succeeded())
    assert asked(world) == []


def test_stops_go_before_offers_and_a_delivery_stays_small(world: World) -> None:
    world.cluster("c1", a_machine(cpu_milli=1_000_000))
    text = "x" * 100_000
    for number in range(12):
        world.enqueue(a_task(f"t{number:02}", env={"TEXT": text}))
        world.claim(f"blue/t{number:02}")
    world.withdraw(key="blue/t11")
    given = asked(world)
    assert [order.kind for order in given[:2]] == ["stop", "offer"]
    assert len(given) < 12
    assert sum(len(order.model_dump_json()) for order in given) <= DELIVERY_BYTES_MAX
    assert world.do(orders, "c1", 1)[1] == given[:1]
