"""What follows the end of an open attempt: the task ends, or waits again. Changes no state."""

from datetime import datetime, timedelta

from domain.attempt import Ending, Outcome, Phase, StopCause
from domain.claims import Finish, Requeue, Then
from domain.reasons import Reason
from domain.retry import Spent, backoff, budget_left, why_final
from domain.stages import Stopping, TaskState


def what_follows(
    state: TaskState, number: int, ending: Ending, at: datetime, chance: float
) -> tuple[Then, Spent]:
    """The row's next state, and the budgets once this ending is charged to one."""
    if isinstance(state.stage, Stopping) and state.stage.then is not None:
        return Finish(outcome=state.stage.then), state.spent
    if ending.success:
        outcome = Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=number)
        return Finish(outcome=outcome), state.spent
    if ending.stop_cause is StopCause.WORKFLOW_GONE:
        gone = Outcome(phase=Phase.CANCELLED, reason=Reason.WORKFLOW_GONE, number=number)
        return Finish(outcome=gone), state.spent
    told = isinstance(state.stage, Stopping) and state.stage.cause is StopCause.CANCEL
    if state.cancelled or told or ending.stop_cause is StopCause.CANCEL:
        cancelled = Outcome(
            phase=Phase.CANCELLED,
            reason=Reason.CANCELLED_BY_USER,
            exit_code=ending.exit_code,
            number=number,
        )
        return Finish(outcome=cancelled), state.spent
    spent = state.spent.charged(ending.cause)
    retries, failure = state.spec.retries, ending.failure
    final = None if failure is None else why_final(retries, failure, ending.exit_code)
    if final is not None or not budget_left(retries, spent, ending.cause):
        detail = "; ".join(filter(None, (ending.detail, final)))
        failed = Outcome(
            phase=Phase.FAILED,
            reason=ending.reason or Reason.BUDGET_SPENT,
            exit_code=ending.exit_code,
            number=number,
            detail=detail or f"{spent.of(ending.cause)} ended by {ending.cause}",
        )
        return Finish(outcome=failed), spent
    not_before = at + backoff(retries, spent, ending.cause, chance)
    return Requeue(not_before=not_before, not_after=wait_limit(state, not_before)), spent


def wait_limit(state: TaskState, since: datetime) -> datetime | None:
    """Until when a task that waits since then may wait."""
    timeout_s = state.spec.queue_timeout_s
    return None if timeout_s is None else since + timedelta(seconds=timeout_s)
