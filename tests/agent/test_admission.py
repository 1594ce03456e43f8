"""What is admitted and what is refused, what is reported, remembered and known after a restart."""

import pytest

from agent.admission import (
    Report,
    ReportTaken,
    Said,
    Stage,
    Terms,
    WorkflowGone,
    remembered,
    unacknowledged,
)
from domain.attempt import Ending, EndKind, StopCause
from domain.protocol import Ended, LeaseQuestion, Order, Started, StopAttempt
from domain.reasons import Reason
from tests.agent.bench import (
    EXITED,
    KEY,
    Bench,
    a_bench,
    a_stop,
    an_inquiry,
    an_offer,
    running,
)

ATTEMPT = f"{KEY}#1"

# --- refusals -------------------------------------------------------------------------------------


def test_a_refusal_is_an_ending_with_the_reason_and_what_was_missing() -> None:
    bench = a_bench()
    assert bench.word(an_offer(cpu_milli=4_001)) == "refused agent_no_room"
    (ending,) = bench.endings()
    assert ending == Ending(
        kind=EndKind.REFUSED, reason=Reason.AGENT_NO_ROOM, detail="short of cpu_milli 1"
    )


def test_everything_that_holds_room_counts() -> None:
    bench = a_bench()
    running(bench, "blue/t1")
    running(bench, "blue/t2")
    running(bench, "blue/t3")
    bench.deliver(a_stop("blue/t2"))
    bench.grant(epoch=2, closed=("blue/t3#1",))
    bench.deliver(an_offer("blue/t4"))
    assert bench.word(an_offer("blue/t5")) == "refused agent_no_room"
    for name in ("blue/t1", "blue/t2", "blue/t3"):
        bench.ended(f"{name}#1")
    assert bench.word(an_offer("blue/t6", cpu_milli=3_000)) == "admitted"


def test_without_a_lease_nothing_is_admitted() -> None:
    bench = a_bench()
    bench.now_ms += 60_000
    assert bench.word(an_offer()) == "refused agent_no_lease"


def test_a_machine_nobody_has_heard_of_is_refused() -> None:
    bench = a_bench()
    bench.now_ms += bench.terms.fence_ms
    bench.grant(epoch=2)
    assert bench.word(an_offer(machine="m9")) == "refused agent_unknown_machine"


def test_an_offer_waits_for_a_keeper_that_is_away_for_a_moment_and_is_refused_after_it() -> None:
    bench = a_bench()
    bench.hang_up()
    assert bench.word(an_offer()) == "none"
    bench.wait(30_000)
    assert bench.word(an_offer()) == "refused unreachable"


def test_an_offer_is_admitted_when_its_keeper_is_back() -> None:
    bench = a_bench()
    bench.hang_up()
    assert bench.word(an_offer()) == "none"
    bench.hello()
    assert bench.word(an_offer()) == "none"
    bench.ask()
    assert bench.word(an_offer()) == "admitted"


def test_an_attempt_the_journal_did_not_know_holds_its_whole_machine() -> None:
    bench = a_bench()
    bench.hello(live=("red/x#3",))
    bench.ask()
    assert bench.word(an_offer()) == "refused agent_no_room"
    bench.ended("red/x#3")
    assert bench.word(an_offer(number=2)) == "admitted"


def test_a_second_number_of_a_task_waits_for_the_end_of_the_first() -> None:
    bench = a_bench(machines=("m1", "m2"))
    running(bench, machine="m1")
    assert bench.word(an_offer(number=2, machine="m2")) == "refused agent_no_room"
    bench.ended(ATTEMPT)
    assert bench.word(an_offer(number=3, machine="m2")) == "admitted"


def test_a_shrunk_machine_admits_nothing_until_it_has_room_again() -> None:
    bench = a_bench()
    running(bench)
    bench.hello(live=(ATTEMPT,), cpu_milli=500)
    bench.ask()
    assert bench.word(an_offer("blue/t2", cpu_milli=1)) == "refused agent_no_room"


# --- stops and tombstones -------------------------------------------------------------------------


def test_a_tombstone_lasts_until_the_next_grant_and_outlives_a_restart() -> None:
    bench = a_bench()
    bench.deliver(a_stop())
    bench.start()
    assert bench.word(an_offer(), epoch=1) == "refused agent_stop_came_first"
    bench.grant(epoch=2)
    assert ATTEMPT not in bench.state.tombstones
    assert bench.word(an_offer(), epoch=1) == "admitted"  # Its end is remembered: nothing starts.
    assert ATTEMPT not in bench.state.live


def test_the_first_cause_of_a_stop_stays_except_that_cancel_overrides() -> None:
    bench = a_bench()
    running(bench)
    bench.deliver(a_stop(cause=StopCause.DRAIN))
    bench.deliver(a_stop(cause=StopCause.PREEMPT))
    (again,) = bench.sent()
    assert isinstance(again, StopAttempt)
    assert again.cause is StopCause.DRAIN
    bench.deliver(a_stop(cause=StopCause.CANCEL))
    (cancel,) = bench.sent()
    assert isinstance(cancel, StopAttempt)
    assert cancel.cause is StopCause.CANCEL


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (StopCause.CANCEL, Reason.CANCELLED_BY_USER),
        (StopCause.PREEMPT, Reason.PREEMPTED),
        (StopCause.DRAIN, Reason.DRAINED),
        (StopCause.RUN_TIMEOUT, Reason.RUN_TIMEOUT),
        (StopCause.OFFER_UNANSWERED, Reason.OFFER_UNANSWERED),
        (StopCause.SUPERSEDED, Reason.SUPERSEDED),
        (StopCause.SHUT_DOWN, Reason.SHUT_DOWN),
        (StopCause.WORKFLOW_GONE, Reason.WORKFLOW_GONE),
    ],
)
def test_a_stop_that_finds_nothing_says_its_cause_as_a_reason(
    cause: StopCause, reason: Reason
) -> None:
    bench = a_bench()
    bench.deliver(a_stop(cause=cause))
    (ending,) = bench.endings()
    assert (ending.kind, ending.stop_cause, ending.reason) == (EndKind.STOPPED, cause, reason)


def test_a_stop_reaches_a_keeper_that_was_away() -> None:
    bench = a_bench()
    running(bench)
    bench.hang_up()
    bench.deliver(a_stop())
    bench.start()
    bench.hello(live=(ATTEMPT,))
    (stop,) = bench.sent()
    assert isinstance(stop, StopAttempt)
    assert stop.cause is StopCause.PREEMPT


# --- started --------------------------------------------------------------------------------------


def test_started_is_told_only_of_what_outlives_two_seconds() -> None:
    bench = a_bench()
    running(bench, "blue/short")
    running(bench, "blue/long")
    assert _started(bench, 1_900) == []
    bench.ended("blue/short#1")
    assert _started(bench, 1_000) == ["blue/long#1"]
    assert _started(bench, 10_000) == []


def test_what_was_announced_is_not_announced_again_after_a_restart() -> None:
    bench = a_bench()
    running(bench, "blue/told")
    running(bench, "blue/untold")
    bench.effects = tuple(bench.wait(2_500))
    (told,) = [r for r in bench.reports() if r.attempt == "blue/told#1"]
    bench.tell(ReportTaken(told))
    bench.start()
    assert _started(bench, 500) == ["blue/untold#1"]


def _started(bench: Bench, ms: int) -> list[str]:
    effects = bench.wait(ms)
    reports = [e for e in effects if isinstance(e, Report)]
    return [r.attempt for r in reports if isinstance(r.message, Started)]


# --- the outbox -----------------------------------------------------------------------------------


def test_an_ending_is_reported_again_after_each_restart_until_it_is_acknowledged() -> None:
    bench = a_bench()
    running(bench)
    bench.ended()
    bench.start()
    assert bench.endings() == [EXITED]
    bench.take()
    bench.start()
    assert bench.endings() == []
    assert unacknowledged(bench.state) == []


def test_an_ending_whose_workflow_is_gone_is_handed_over_until_acknowledged() -> None:
    bench = a_bench()
    running(bench)
    bench.ended()
    bench.refuse_reports()
    (handed,) = bench.handed_over()
    assert (handed.orphan.key, handed.orphan.number) == (KEY, 1)
    bench.start()
    assert bench.handed_over() == [handed]
    bench.take()
    assert unacknowledged(bench.state) == []


def test_an_attempt_whose_workflow_is_gone_is_stopped() -> None:
    bench = a_bench()
    running(bench)
    (report,) = [e for e in bench.wait(2_500) if isinstance(e, Report)]
    bench.tell(WorkflowGone(report))
    (stop,) = bench.sent()
    assert isinstance(stop, StopAttempt)
    assert stop.cause is StopCause.WORKFLOW_GONE


def test_the_acknowledgement_of_a_replaced_ending_settles_nothing() -> None:
    bench = a_bench()
    running(bench)
    bench.hang_up()
    effects = bench.wait(bench.terms.fence_ms + 1_000)
    (loss,) = [e for e in effects if isinstance(e, Report) and isinstance(e.message, Ended)]
    bench.hello()
    bench.ended()
    bench.tell(ReportTaken(loss))
    assert [record.ending for record in unacknowledged(bench.state)] == [EXITED]


def test_an_inquiry_sends_a_settled_ending_again() -> None:
    bench = a_bench()
    running(bench)
    bench.ended()
    bench.take()
    assert bench.word(an_inquiry()) == "taken"
    assert bench.endings() == [EXITED]
    bench.start()
    assert bench.endings() == [EXITED]


def test_what_an_inquiry_found_lost_never_starts() -> None:
    bench = a_bench()
    bench.deliver(an_inquiry())
    assert [e.reason for e in bench.endings()] == [Reason.ATTEMPT_UNKNOWN]
    bench.deliver(an_offer())
    assert ATTEMPT not in bench.state.live


def test_the_memory_of_endings_is_bounded_but_never_drops_one_that_nobody_has() -> None:
    bench = a_bench(Terms(remembered_max=20))
    running(bench, "blue/unheard")
    bench.ended("blue/unheard#1")
    for number in range(200):
        attempt = running(bench, f"blue/t{number}")
        bench.ended(attempt)
        bench.take()
    assert len(bench.state.ended) + len(bench.state.ended_before) <= 21
    assert [record.id for record in unacknowledged(bench.state)] == ["blue/unheard#1"]
    assert remembered(bench.state, "blue/t199#1") is not None


# --- keepers that restart -------------------------------------------------------------------------


def test_what_a_keepers_journal_still_knows_of_the_end_counts_before_its_loss() -> None:
    bench = a_bench()
    running(bench, "blue/t1")
    running(bench, "blue/t2")
    bench.hang_up()
    bench.hello(instance="k2")
    bench.ended("blue/t1#1")
    assert bench.endings() == [EXITED]
    bench.ask()
    assert [
        (r.attempt, e.reason) for r, e in zip(bench.reports(), bench.endings(), strict=True)
    ] == [("blue/t2#1", Reason.KEEPER_LOST)]


def test_a_keeper_that_restarted_while_the_agent_was_away_has_lost_its_attempts() -> None:
    bench = a_bench()
    running(bench)
    bench.start()
    bench.hello(instance="k2")
    bench.ask()
    assert [e.reason for e in bench.endings()] == [Reason.KEEPER_LOST]


def test_the_message_of_a_connection_that_has_ended_asks_for_no_lease() -> None:
    bench = a_bench()
    old = bench.state.machines["m1"].connection
    bench.hello()
    assert bench.state.machines["m1"].connection != old
    bench.tell(Said("m1", old or 0, LeaseQuestion(question=77)))
    assert bench.effects == ()


# --- a journal that is lost -----------------------------------------------------------------------


@pytest.mark.parametrize("order", [an_inquiry(), a_stop()])
def test_a_young_journal_does_not_say_what_it_cannot_know(order: Order) -> None:
    bench = Bench()
    bench.grant()
    assert bench.deliver(order)[0].answer == "taken"
    assert bench.endings() == []
    bench.hello()
    bench.ask()
    assert len(bench.endings()) == 1


def test_a_stop_finds_its_attempt_when_the_keeper_says_that_it_runs() -> None:
    bench = Bench()
    bench.grant()
    bench.deliver(a_stop())
    bench.hello(live=(ATTEMPT,))
    assert [m.kind for m in bench.sent()] == ["stop", "stop"]
    assert bench.state.live[ATTEMPT].stage is Stage.STOPPING
    bench.ask()
    assert bench.endings() == []


def test_closed_numbers_are_answered_as_ended_once_no_unknown_keeper_may_run_them() -> None:
    bench = Bench()
    assert bench.grant(closed=(ATTEMPT,)).ended == ()
    bench.effects = tuple(bench.wait(bench.terms.fence_ms + 1_000))
    assert [e.reason for e in bench.endings()] == [Reason.ATTEMPT_UNKNOWN]


def test_a_closed_number_that_a_keeper_still_runs_is_killed() -> None:
    bench = Bench()
    bench.grant(closed=(ATTEMPT,))
    bench.hello(live=(ATTEMPT,))
    assert bench.state.live[ATTEMPT].stage is Stage.REMNANT
    assert [m.kind for m in bench.sent()] == ["stop"]


def test_an_offer_for_a_machine_that_a_young_agent_has_not_heard_of_can_wait() -> None:
    bench = Bench()
    bench.grant()
    assert bench.word(an_offer()) == "none"
