"""The life of a task as sentences. The ledger's answers are given; tests/store earns them."""

from datetime import timedelta

import pytest

from domain.attempt import Phase, StopCause
from domain.claims import (
    Enqueue,
    Enqueued,
    Finish,
    Requeue,
    Settle,
    Settled,
    SubmitRefusal,
    Withdraw,
    WithdrawAnswer,
    WithdrawCause,
)
from domain.lifecycle import RefusedError
from domain.protocol import Cancel, Expire, ReRead
from domain.reasons import Reason
from domain.retry import Spent
from domain.stages import Offered, Pending, Running, Stopping
from tests.domain.builders import (
    FREE,
    NOW,
    PLACE,
    Story,
    an_outcome,
    exited,
    fenced,
    live,
    lost,
    placed,
    progress,
    refused,
    running,
    started,
    stop_requested,
    stopped,
)

MINE_1 = Settled(mine=True, closed=1)
LATE_1 = Settled(mine=False, closed=1)


def test_a_task_waits_is_offered_runs_and_succeeds():
    task = Story()
    assert isinstance(task.asks, Enqueue)
    assert task.hears(FREE).phase is Phase.PENDING
    assert task.hears(placed(1)).phase is Phase.OFFERED
    assert task.hears(started(1)).phase is Phase.RUNNING
    task.hears(exited(1, 0))
    assert isinstance(task.asks, Settle)
    assert task.hears(MINE_1).outcome == an_outcome(exit_code=0, number=1)
    assert [(a.number, a.machine) for a in task.state.attempts] == [(1, "m1")]


def test_a_task_may_end_before_anybody_heard_that_it_was_placed():
    assert Story().hears(FREE).settles(exited(1, 0)).phase is Phase.SUCCEEDED


# --- fences -----------------------------------------------------------------------------------


def test_a_late_report_of_an_old_attempt_changes_nothing():
    task = running(1).settles(lost(1)).hears(placed(2), started(2))
    before = task.state
    task.hears(exited(1, 0))
    assert task.asks is None  # Its room was released with the first report.
    assert task.state == before.model_copy(update={"late": 1})


def test_a_late_report_of_a_fenced_attempt_only_releases_its_room():
    task = running(1).settles(fenced(1)).hears(placed(2), started(2))
    before = task.state
    task.hears(exited(1, 0))
    assert isinstance(task.asks, Settle)
    assert task.asks.late
    task.hears(LATE_1)
    assert task.state == before.model_copy(update={"late": 1})


def test_a_late_settle_decides_nothing_even_when_the_ledger_knows_it_again():
    task = running(1).settles(fenced(1)).hears(placed(2), started(2))
    task.hears(exited(1, 0), MINE_1)
    assert task.state.stage == Running(number=2, **PLACE)


def test_a_report_that_overtook_the_fence_is_late_and_the_fence_still_frees_the_row():
    task = running(1).hears(exited(1, 1), LATE_1)
    assert task.phase is Phase.PENDING
    task.hears(fenced(1))
    assert isinstance(task.asks, Settle)
    assert isinstance(task.asks.then, Requeue)
    assert task.hears(MINE_1).phase is Phase.PENDING
    assert task.state.spent == Spent(losses=1)


def test_a_repeated_fence_is_counted_and_asks_nothing():
    task = running(1).settles(fenced(1)).hears(fenced(1))
    assert task.asks is None
    assert task.state.late == 1


def test_a_newer_attempt_is_shown_though_the_end_of_the_last_was_never_heard():
    assert running(1).hears(placed(3)).state.stage == Offered(number=3, **PLACE)


def test_late_success_is_refused_by_default():
    task = running(1).settles(fenced(1)).hears(placed(2), exited(1, 0), LATE_1)
    assert task.asks is None
    assert task.phase is Phase.OFFERED


def test_an_idempotent_task_takes_a_late_success_while_it_waits():
    task = running(1, accept_late_success=True).settles(fenced(1))
    task.hears(exited(1, 0), LATE_1)
    assert isinstance(task.asks, Withdraw)
    assert task.asks.cause is WithdrawCause.LATE_SUCCESS
    final = task.asks.outcome
    assert task.withdrawn(WithdrawAnswer.WITHDRAWN, final=final).phase is Phase.SUCCEEDED
    assert task.outcome.number == 1


def _superseded() -> Story:
    task = running(1, accept_late_success=True).settles(fenced(1)).hears(placed(2), started(2))
    task.hears(exited(1, 0), LATE_1)
    return task.withdrawn(WithdrawAnswer.STOPPING, live=live(2, stop=StopCause.SUPERSEDED))


def test_a_late_success_stops_the_replacement_and_is_then_recorded():
    task = _superseded()
    assert task.phase is Phase.STOPPING
    task.settles(stopped(2, StopCause.SUPERSEDED))
    assert (task.phase, task.outcome.number) == (Phase.SUCCEEDED, 1)


def test_a_late_success_outlives_asking_again():
    task = _superseded().hears(ReRead())
    task.hears(Enqueued(closed=1, live=live(2, stop=StopCause.SUPERSEDED)))
    task.settles(lost(2))
    assert (task.phase, task.outcome.number) == (Phase.SUCCEEDED, 1)


def test_a_late_success_is_recorded_when_the_replacement_was_closed_meanwhile():
    task = _superseded().hears(ReRead(), Enqueued(closed=2))
    assert isinstance(task.asks, Withdraw)
    assert task.asks.cause is WithdrawCause.LATE_SUCCESS


def test_a_second_late_success_asks_nothing_more():
    task = _superseded().hears(exited(1, 0), LATE_1)
    assert task.asks is None
    assert task.phase is Phase.STOPPING


# --- cancel and expiry ------------------------------------------------------------------------


def test_cancel_while_pending_is_final_at_once():
    task = Story().hears(FREE, Cancel(by="ann"))
    assert isinstance(task.asks, Withdraw)
    final = task.asks.outcome
    assert task.withdrawn(WithdrawAnswer.WITHDRAWN, final=final).phase is Phase.CANCELLED
    assert (task.outcome.reason, task.outcome.detail) == (Reason.CANCELLED_BY_USER, "by ann")


@pytest.mark.parametrize("last_heard", [placed(1), started(1)], ids=["offered", "running"])
def test_cancel_of_a_claimed_attempt_ends_only_after_its_own_report(last_heard):
    task = Story().hears(FREE, last_heard, Cancel())
    task.withdrawn(WithdrawAnswer.STOPPING, live=live(1, stop=StopCause.CANCEL))
    assert task.phase is Phase.STOPPING
    task.settles(stopped(1, StopCause.CANCEL))
    assert (task.phase, task.outcome.reason) == (Phase.CANCELLED, Reason.CANCELLED_BY_USER)


def test_cancel_in_the_gap_between_claim_and_hint_learns_of_the_claim():
    task = Story().hears(FREE, Cancel())  # L44: the row was claimed, nobody had said so yet.
    task.withdrawn(WithdrawAnswer.STOPPING, live=live(1, admitted=False))
    assert task.state.stage == Stopping(number=1, cause=StopCause.CANCEL, **PLACE)
    assert task.settles(refused(1)).phase is Phase.CANCELLED


def test_a_second_cancel_asks_nothing():
    task = running(1).hears(Cancel()).withdrawn(WithdrawAnswer.STOPPING, live=live(1))
    assert task.hears(Cancel()).asks is None


def test_abandon_closes_a_task_that_may_still_run():
    task = running(1).hears(Cancel()).withdrawn(WithdrawAnswer.STOPPING, live=live(1))
    task.hears(Cancel(abandon=True))
    assert isinstance(task.asks, Withdraw)
    assert task.asks.outcome.reason is Reason.MAY_STILL_RUN
    final = task.asks.outcome
    assert task.withdrawn(WithdrawAnswer.ABANDONED, final=final).phase is Phase.CANCELLED


def test_a_cancelled_attempt_that_had_exited_with_0_before_the_stop_is_a_success():
    task = running(1).hears(Cancel()).withdrawn(WithdrawAnswer.STOPPING, live=live(1))
    assert task.settles(exited(1, 0)).phase is Phase.SUCCEEDED


def test_a_cancelled_attempt_that_fails_or_is_lost_is_cancelled_and_not_tried_again():
    for ending in (exited(1, 1), lost(1), fenced(1)):
        task = running(1, retries={"failures": 5}).hears(Cancel())
        task.withdrawn(WithdrawAnswer.STOPPING, live=live(1))
        assert task.settles(ending).phase is Phase.CANCELLED, ending


def test_an_adopted_stop_for_a_cancel_is_a_cancel_when_its_cluster_is_fenced():
    task = Story().hears(Enqueued(closed=0, live=live(1, stop=StopCause.CANCEL)))
    assert task.settles(fenced(1)).phase is Phase.CANCELLED


def test_a_cancel_that_the_row_forgot_is_asked_for_again():
    task = running(1).hears(Cancel()).withdrawn(WithdrawAnswer.STOPPING, live=live(1))
    task.hears(ReRead(), Enqueued(closed=1))
    assert isinstance(task.asks, Withdraw)
    assert task.asks.cause is WithdrawCause.CANCEL


def test_a_stop_with_exit_0_is_no_success():
    task = running(1).hears(stop_requested(1))  # L35
    assert task.settles(stopped(1, StopCause.PREEMPT, code=0)).phase is Phase.PENDING
    assert task.state.spent == Spent(preemptions=1)


def test_exit_0_seen_before_the_stop_counts_as_success():
    assert running(1).hears(stop_requested(1)).settles(exited(1, 0)).phase is Phase.SUCCEEDED


def test_the_queue_timeout_ends_a_waiting_task():
    task = Story(queue_timeout_s=60).hears(FREE, Expire())
    assert isinstance(task.asks, Withdraw)
    final = task.asks.outcome
    task.withdrawn(WithdrawAnswer.WITHDRAWN, final=final)
    assert (task.phase, task.outcome.reason) == (Phase.EXPIRED, Reason.QUEUE_TIMEOUT)


@pytest.mark.parametrize("heard", [(), (placed(1),), (placed(1), started(1))])
def test_the_queue_timeout_does_nothing_to_a_claimed_row(heard):
    task = Story().hears(FREE, *heard)
    before = task.state
    assert task.hears(Expire()).withdrawn(WithdrawAnswer.NO_EFFECT).state == before


def test_the_queue_timeout_runs_anew_each_time_the_task_waits():
    task = running(1, queue_timeout_s=60).hears(lost(1))
    assert isinstance(task.asks, Settle)
    assert isinstance(task.asks.then, Requeue)
    assert task.asks.then.not_after is not None
    assert (task.asks.then.not_after - task.asks.then.not_before).total_seconds() == 60


# --- budgets ----------------------------------------------------------------------------------

BY_CAUSE = {
    "failures": lambda n: exited(n, 1),
    "losses": lost,
    "preemptions": lambda n: stopped(n, StopCause.PREEMPT),
    "refusals": refused,
}


@pytest.mark.parametrize("budget", BY_CAUSE)
def test_each_cause_has_a_budget_of_its_own(budget):
    none_left = dict.fromkeys(BY_CAUSE, 0)
    task = Story(retries={**none_left, budget: 2}).hears(FREE)
    for number in (1, 2):
        assert task.settles(BY_CAUSE[budget](number)).phase is Phase.PENDING
    assert task.settles(BY_CAUSE[budget](3)).phase is Phase.FAILED
    assert task.state.spent == Spent(**{budget: 3})


def test_only_failures_are_charged_to_the_user():
    task = Story(retries={"failures": 0}).hears(FREE)
    for number, cause in enumerate((lost, refused), start=1):
        task.settles(cause(number))
    task.settles(stopped(3, StopCause.DRAIN)).settles(stopped(4, StopCause.SHUT_DOWN))
    assert (task.phase, task.state.spent.failures) == (Phase.PENDING, 0)
    assert task.settles(exited(5, 7)).outcome.exit_code == 7


def test_a_run_timeout_is_a_failure_of_the_user():
    task = running(1).settles(stopped(1, StopCause.RUN_TIMEOUT, code=143))
    assert task.phase is Phase.FAILED


def test_a_report_that_the_ledger_calls_late_is_charged_to_nobody():
    assert running(1).hears(exited(1, 1), LATE_1).state.spent == Spent()


def test_a_failure_waits_before_the_next_attempt_and_a_preemption_does_not():
    failed = running(1, retries={"failures": 1}).hears(exited(1, 1), chance=0.0)
    assert isinstance(failed.asks, Settle)
    assert isinstance(failed.asks.then, Requeue)
    assert (failed.asks.then.not_before - failed.now).total_seconds() == 0.5
    yielded = running(1).hears(stopped(1, StopCause.PREEMPT))
    assert isinstance(yielded.asks, Settle)
    assert isinstance(yielded.asks.then, Requeue)
    assert yielded.asks.then.not_before == yielded.now


# --- asking again -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "stage"),
    [
        (Enqueued(closed=3), Pending()),
        (Enqueued(closed=3, live=live(4, admitted=False)), Offered(number=4, **PLACE)),
        (Enqueued(closed=3, live=live(4)), Running(number=4, **PLACE)),
        (
            Enqueued(closed=3, live=live(4, stop=StopCause.DRAIN)),
            Stopping(number=4, cause=StopCause.DRAIN, **PLACE),
        ),
    ],
)
def test_a_reset_rereads_the_row_and_adopts_what_is_live(answer, stage):
    task = running(1).hears(ReRead())
    assert isinstance(task.asks, Enqueue)
    task.hears(answer)
    assert (task.state.stage, task.state.closed) == (stage, 3)


def test_a_new_run_of_a_finished_task_ends_with_the_recorded_outcome():
    over = an_outcome(Phase.CANCELLED, reason=Reason.WORKFLOW_GONE, number=2)
    assert Story().hears(Enqueued(closed=2, final=over)).outcome == over


def test_a_run_that_forgot_its_budgets_takes_them_from_the_ledger():
    task = Story(retries={"failures": 1}).hears(Enqueued(closed=2, spent=Spent(failures=1)))
    assert task.settles(exited(3, 1)).phase is Phase.FAILED


def test_a_settle_that_finds_the_row_final_ends_with_the_recorded_outcome():
    over = an_outcome(Phase.CANCELLED, reason=Reason.WORKFLOW_GONE, number=1)
    task = running(1).hears(exited(1, 1), Settled(mine=False, closed=1, final=over))
    assert task.outcome == over


def test_a_refused_submission_is_a_typed_error():
    refusal = SubmitRefusal(code="conflict", message="another body")
    with pytest.raises(RefusedError, match="another body") as caught:
        Story().hears(Enqueued(closed=0, refusal=refusal))
    assert caught.value.code == "conflict"


# --- what is shown ----------------------------------------------------------------------------


def test_an_ending_goes_to_the_ledger_with_the_instant_at_which_it_happened():
    task = running(1)
    report = exited(1, 0).model_copy(update={"at": NOW + timedelta(seconds=1)})
    task.hears(report)
    assert isinstance(task.asks, Settle)
    assert (task.asks.ended_at, task.asks.at > report.at) == (report.at, True)
    task.hears(Settled(mine=True, closed=1))
    assert [record.ended_at for record in task.state.attempts] == [report.at]


def test_a_fence_has_no_instant_of_its_own():
    task = running(1).hears(fenced(1))
    assert isinstance(task.asks, Settle)
    assert task.asks.ended_at is None


def test_a_note_is_shown_until_the_next_and_a_repeated_start_keeps_it():
    task = running(1).hears(progress(1, "half"), started(1), placed(1))
    assert task.state.stage == Running(number=1, note="half", **PLACE)


def test_the_first_stop_cause_stays_except_that_cancel_overrides():
    task = running(1).hears(stop_requested(1), stop_requested(1, StopCause.DRAIN))
    assert task.state.stage == Stopping(number=1, cause=StopCause.PREEMPT, **PLACE)
    task.hears(Cancel()).withdrawn(WithdrawAnswer.STOPPING, live=live(1, stop=StopCause.CANCEL))
    assert task.state.stage == Stopping(number=1, cause=StopCause.CANCEL, **PLACE)


def test_only_the_latest_attempts_are_kept_in_the_state():
    task = Story(retries={"failures": 100}).hears(FREE)
    for number in range(1, 31):
        task.settles(exited(number, 1))
    assert [a.number for a in task.state.attempts] == list(range(11, 31))


def test_the_outcome_of_a_failure_names_the_last_ending():
    task = running(1).hears(exited(1, 3))
    assert isinstance(task.asks, Settle)
    assert isinstance(task.asks.then, Finish)
    failed = task.asks.then.outcome
    assert (failed.phase, failed.reason, failed.exit_code) == (
        Phase.FAILED,
        Reason.NONZERO_EXIT,
        3,
    )
