"""Claims against what the agent says it runs: what differs is asked about, and nothing else is."""

from domain.attempt import StopCause
from domain.ids import attempt_hash, attempt_id
from domain.protocol import Inquiry, RunningDigest, StopOrder
from store.digests import DOUBT_AFTER_S
from store.orders import orders, request_stop
from tests.store.world import World

NOTHING = RunningDigest(machine="m1", count=0, xor=0)


def _runs(*attempts: str) -> RunningDigest:
    xor = 0
    for attempt in attempts:
        xor ^= attempt_hash(attempt)
    return RunningDigest(machine="m1", count=len(attempts), xor=xor)


def _asked(world: World) -> list[type]:
    return [type(order) for order in world.read(orders, "c1")[1]]


def test_a_claim_that_the_agent_does_not_run_is_asked_about_once_it_is_old(memory: World) -> None:
    memory.cluster()
    memory.running()
    memory.beat(running=(NOTHING,))
    assert _asked(memory) == []  # Its report may be on the way.
    memory.later(DOUBT_AFTER_S + 1)
    memory.beat(running=(NOTHING,))
    assert _asked(memory) == [Inquiry]


def test_a_claim_that_fits_the_digest_is_left_alone(memory: World) -> None:
    memory.cluster()
    key = memory.running()
    memory.later(DOUBT_AFTER_S + 1)
    memory.beat(running=(_runs(attempt_id(key, 1)),))
    assert _asked(memory) == []


def test_another_attempt_in_its_place_is_a_difference_though_the_count_fits(memory: World) -> None:
    memory.cluster()
    memory.running()
    memory.later(DOUBT_AFTER_S + 1)
    memory.beat(running=(_runs("blue/other#1"),))
    assert _asked(memory) == [Inquiry]


def test_a_machine_without_a_digest_in_this_heartbeat_is_left_alone(memory: World) -> None:
    memory.cluster()
    memory.running()
    memory.later(DOUBT_AFTER_S + 1)
    memory.beat()
    assert _asked(memory) == []


def test_a_refusal_or_stop_whose_report_never_came_is_asked_about(memory: World) -> None:
    memory.cluster()
    memory.enqueue()
    memory.claim()
    memory.answer("offer", "refused")
    memory.later(DOUBT_AFTER_S + 1)
    memory.beat(running=(NOTHING,))
    assert _asked(memory) == [Inquiry]


def test_a_stop_that_was_not_delivered_goes_before_any_question(memory: World) -> None:
    memory.cluster()
    memory.running()
    memory.later(DOUBT_AFTER_S + 1)
    memory.do(request_stop, "blue/t", StopCause.DRAIN, memory.now)
    memory.beat(running=(NOTHING,))
    assert _asked(memory) == [StopOrder]
