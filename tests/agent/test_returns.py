"""A keeper that was silent and is heard again on the same connection, as after a stall."""

from agent.admission import Terms
from domain.attempt import Ending, EndKind, StopCause
from domain.protocol import LeaseAnswer, StopAttempt
from domain.task import OnLoss
from tests.agent.bench import a_bench, an_offer, running

NEVER_STARTED = Ending(kind=EndKind.STOPPED, stop_cause=StopCause.SUPERSEDED)


def test_a_start_that_the_keeper_dropped_while_it_stalled_frees_its_room() -> None:
    bench = a_bench()
    bench.deliver(an_offer(cpu_milli=4_000))
    bench.wait(Terms().fence_ms + 1_000)
    bench.grant(epoch=2)
    stops = [m for m in bench.ask(epoch=1) if isinstance(m, StopAttempt)]
    assert [stop.attempt for stop in stops] == ["blue/t1#1"]
    bench.ended("blue/t1#1", NEVER_STARTED)
    bench.ask(epoch=2)
    assert bench.word(an_offer("blue/t2", cpu_milli=4_000)) == "admitted"


def test_what_was_replaced_at_once_is_stopped_when_its_keeper_was_only_slow() -> None:
    bench = a_bench()
    bench.deliver(an_offer(on_loss=OnLoss.REPLACE_AT_ONCE))
    bench.started()
    bench.wait(Terms().suspect_ms + 1_000)
    assert [type(m) for m in bench.ask(epoch=1)] == [StopAttempt, LeaseAnswer]


def test_a_keeper_that_was_never_suspected_is_told_nothing() -> None:
    bench = a_bench()
    running(bench)
    bench.wait(10_000)
    assert not any(isinstance(m, StopAttempt) for m in bench.ask(epoch=1))
