"""The task state machine. Everything that changes a task's state is in this file.

`step(state, event)` answers with the next state and the effects to carry out, at most one. An
effect is a question to the ledger, and its answer is the very next event: in the stages Enqueuing,
Settling and Withdrawing nothing else may come. Knows nothing of clocks, chance, SQL or Temporal:
time and chance are fields of the event.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from domain.aftermath import wait_limit, what_follows
from domain.attempt import AttemptRecord, Ending, EndKind, Outcome, Phase, StopCause
from domain.claims import (
    Enqueue,
    Enqueued,
    Finish,
    LedgerAnswer,
    LedgerOperation,
    LiveAttempt,
    Requeue,
    Settle,
    Settled,
    Then,
    Withdraw,
    WithdrawAnswer,
    WithdrawCause,
    Withdrawn,
)
from domain.protocol import (
    Cancel,
    Ended,
    Expire,
    Fenced,
    Placed,
    Progress,
    ReRead,
    Started,
    StopRequested,
    TaskMessage,
)
from domain.reasons import Reason
from domain.retry import Spent
from domain.stages import (
    ATTEMPTS_SHOWN_MAX,
    Done,
    Enqueuing,
    Offered,
    Pending,
    Resting,
    Running,
    Settling,
    Stage,
    Stopping,
    TaskState,
    Withdrawing,
    live_number,
)
from domain.stamps import shown_span

Effects = tuple[LedgerOperation, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A message from outside or the ledger's answer, when it came, and a draw in [0, 1)."""

    what: TaskMessage | LedgerAnswer
    at: datetime
    chance: float = 0.0


class RefusedError(Exception):
    """The ledger refuses the submission: the workflow fails with a typed error, no row was made."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def begin(state: TaskState, at: datetime) -> tuple[TaskState, Effects]:
    """The first step of every run: learn from the ledger where the row stands."""
    enqueue = Enqueue(spec=state.spec, digest=state.digest, not_after=wait_limit(state, at), at=at)
    then = state.stage.then if isinstance(state.stage, Stopping | Enqueuing) else None
    asking = {"stage": Enqueuing(then=then), "pending_since": at}
    return state.model_copy(update=asking), (enqueue,)


def step(state: TaskState, event: Event) -> tuple[TaskState, Effects]:
    """The next state and what to ask of the ledger."""
    match state.stage, event.what:
        case Enqueuing() as stage, Enqueued() as answer:
            return _enqueued(state, stage, answer, event.at)
        case Settling() as stage, Settled() as answer:
            return _settled(state, stage, answer, event)
        case Withdrawing() as stage, Withdrawn() as answer:
            return _withdrawn(state, stage, answer), ()
        case Enqueuing() | Settling() | Withdrawing(), _:
            raise AssertionError(f"{event.what!r} came while the ledger was asked: {state.stage!r}")
        case _, Enqueued() | Settled() | Withdrawn():
            raise AssertionError(f"{event.what!r} answers nothing that was asked: {state.stage!r}")
        case (
            Done(),
            Ended() | Started() | Progress() | Fenced() | Placed() | StopRequested(),
        ):
            return _counted_late(state), ()
        case Done(), _:
            return state, ()
        case _, ReRead():
            return begin(state, event.at)
        case Pending() | Offered() | Running() | Stopping(), Cancel() as cancel:
            return _cancel(state, cancel, event.at)
        case _, Expire():
            # Asked whatever the stage is: the row decides, and a claimed one answers "no effect".
            outcome = Outcome(phase=Phase.EXPIRED, reason=Reason.QUEUE_TIMEOUT, number=state.closed)
            return _withdraw(state, WithdrawCause.EXPIRE, outcome, event.at)
        case _, Ended() as report:
            return _ended(state, report, event)
        case _, Fenced() as fenced:
            return _fenced(state, fenced, event)
        case _, (Placed() | Started() | Progress() | StopRequested()) as report:
            return _shown(state, report), ()
    raise AssertionError((state.stage, event.what))


def check(state: TaskState) -> None:
    """What must hold after every step."""
    number = live_number(state.stage)
    assert state.closed >= 0
    assert number is None or number > state.closed, (number, state.closed)
    assert len(state.attempts) <= ATTEMPTS_SHOWN_MAX
    assert [a.number for a in state.attempts] == sorted({a.number for a in state.attempts})
    if isinstance(state.stage, Done):
        assert state.stage.outcome.phase.final


# --- answers of the ledger --------------------------------------------------------------------


def _enqueued(
    state: TaskState, asked: Enqueuing, answer: Enqueued, at: datetime
) -> tuple[TaskState, Effects]:
    if answer.refusal is not None:
        raise RefusedError(answer.refusal.code, answer.refusal.message)
    live = answer.live
    state = state.model_copy(
        update={
            "closed": max(state.closed, answer.closed),
            "spent": state.spent.at_least(answer.spent),
            "cancelled": state.cancelled or _told_to_cancel(live),
        }
    )
    if answer.final is not None:
        return _at(state, Done(outcome=answer.final)), ()
    state = _at(state, Pending() if live is None else _adopted(live, asked.then))
    if state.cancelled and not _told_to_cancel(live):
        # The wish outlived the row's memory of it: the number it stopped was closed otherwise.
        return _cancel(state.model_copy(update={"cancelled": False}), Cancel(), at)
    if asked.then is not None and live is None:
        return _withdraw(state, WithdrawCause.LATE_SUCCESS, asked.then, at)
    return state, ()


def _told_to_cancel(live: LiveAttempt | None) -> bool:
    return live is not None and live.stop_cause is StopCause.CANCEL


def _adopted(live: LiveAttempt, then: Outcome | None) -> Resting:
    place: dict[str, Any] = {
        "number": live.number,
        "cluster": live.cluster,
        "machine": live.machine,
    }
    if live.stop_cause is not None:
        kept = None if live.stop_cause is StopCause.CANCEL else then
        return Stopping(**place, cause=live.stop_cause, then=kept)
    return Running(**place) if live.admitted else Offered(**place)


def _settled(
    state: TaskState, stage: Settling, answer: Settled, event: Event
) -> tuple[TaskState, Effects]:
    settle = stage.settle
    # A late settle only releases room: even a ledger that knows it again decides nothing by it.
    mine = answer.mine and not settle.late
    if answer.final is not None and not mine:
        return _at(state, Done(outcome=answer.final)), ()
    if not mine:
        back = _counted_late(_at(state, _still(stage.back, answer.closed)))
        back = back.model_copy(update={"closed": max(state.closed, answer.closed)})
        return _late_success(back, settle.number, settle.ending, event.at)
    span = shown_span(settle.started_at, settle.ended_at or settle.at, heard_at=settle.at)
    record = AttemptRecord(
        number=settle.number,
        cluster=settle.cluster,
        machine=stage.machine,
        started_at=span.started_at,
        ended_at=span.ended_at,
        ending=settle.ending,
    )
    end = settle.then.outcome if isinstance(settle.then, Finish) else None
    end = answer.final or end  # What the row says stands, should it say something else.
    after = Pending() if end is None else Done(outcome=end)
    return (
        _recorded(state, record).model_copy(
            update={
                "stage": after,
                "closed": max(state.closed, settle.number),
                "spent": stage.spent,
                "pending_since": settle.at,
            }
        ),
        (),
    )


def _still(back: Resting, closed: int) -> Resting:
    """The stage to go back to: a live attempt whose number turned out to be closed is not live."""
    number = live_number(back)
    return Pending() if number is not None and number <= closed else back


def _withdrawn(state: TaskState, stage: Withdrawing, answer: Withdrawn) -> TaskState:
    match answer.answer:
        case WithdrawAnswer.WITHDRAWN | WithdrawAnswer.ABANDONED | WithdrawAnswer.FINAL:
            assert answer.final is not None, answer
            return state.model_copy(update={"stage": Done(outcome=answer.final)})
        case WithdrawAnswer.STOPPING:
            assert answer.live is not None, answer
            late = stage.withdraw.cause is WithdrawCause.LATE_SUCCESS
            stopping = Stopping(
                number=answer.live.number,
                cluster=answer.live.cluster,
                machine=answer.live.machine,
                cause=StopCause.SUPERSEDED if late else StopCause.CANCEL,
                then=stage.withdraw.outcome if late else None,
            )
            return state.model_copy(update={"stage": stopping})
        case WithdrawAnswer.NO_EFFECT:
            return state.model_copy(update={"stage": stage.back})


# --- messages ---------------------------------------------------------------------------------


def _shown(state: TaskState, report: Placed | Started | Progress | StopRequested) -> TaskState:
    """These reports change only what is shown."""
    number, stage = report.number, state.stage
    if number <= state.closed or number < (live_number(stage) or 0):
        return _counted_late(state)
    place: dict[str, Any] = {"number": number, "cluster": report.cluster, "machine": report.machine}
    match report, stage:
        case StopRequested(), _:
            kept = isinstance(stage, Stopping) and stage.number == number
            return state if kept else _at(state, Stopping(**place, cause=report.cause))
        case _, Stopping() if stage.number == number:
            return state
        case Placed() | Started(), Running() if stage.number == number:
            return state
        case Placed(), _:
            return _at(state, Offered(**place))
        case Progress(), _:
            return _at(state, Running(**place, note=report.note))
        case _, _:
            return _at(state, Running(**place))


def _at(state: TaskState, stage: Stage) -> TaskState:
    return state.model_copy(update={"stage": stage})


def _cancel(state: TaskState, cancel: Cancel, at: datetime) -> tuple[TaskState, Effects]:
    if state.cancelled and not cancel.abandon:
        return state, ()
    reason = Reason.MAY_STILL_RUN if cancel.abandon else Reason.CANCELLED_BY_USER
    outcome = Outcome(
        phase=Phase.CANCELLED,
        reason=reason if live_number(state.stage) else Reason.CANCELLED_BY_USER,
        number=state.closed,
        detail=f"by {cancel.by}" if cancel.by else "",
    )
    wished = state.model_copy(update={"cancelled": True})
    return _withdraw(wished, WithdrawCause.CANCEL, outcome, at, abandon=cancel.abandon)


def _withdraw(
    state: TaskState,
    cause: WithdrawCause,
    outcome: Outcome,
    at: datetime,
    abandon: bool = False,
) -> tuple[TaskState, Effects]:
    assert isinstance(state.stage, Pending | Offered | Running | Stopping), state.stage
    ask = Withdraw(key=state.spec.key, cause=cause, outcome=outcome, abandon=abandon, at=at)
    return state.model_copy(update={"stage": Withdrawing(back=state.stage, withdraw=ask)}), (ask,)


def _ended(state: TaskState, report: Ended, event: Event) -> tuple[TaskState, Effects]:
    if report.number <= state.closed:
        known = next((a for a in state.attempts if a.number == report.number), None)
        if known is not None and known.ending is not None and _releases(known.ending):
            # A repeated report: its room was released with the first.
            return _counted_late(state), ()
        # `then` is never used: a late settle changes nothing of the task.
        keep = Requeue(not_before=event.at)
        return _settle(state, report, report.ending, keep, event, state.spent, late=True)
    then, spent = what_follows(state, report.number, report.ending, event.at, event.chance)
    return _settle(state, report, report.ending, then, event, spent)


def _fenced(state: TaskState, fenced: Fenced, event: Event) -> tuple[TaskState, Effects]:
    recorded = any(a.number == fenced.number for a in state.attempts)
    if recorded or fenced.number < max(state.closed, live_number(state.stage) or 0):
        return _counted_late(state), ()
    # The last closed number is asked about too: when a report overtook the hint and was answered
    # "late", the row still waits for this very settle.
    ending = Ending(kind=EndKind.FENCED, reason=fenced.reason)
    then, spent = what_follows(state, fenced.number, ending, event.at, event.chance)
    return _settle(state, fenced, ending, then, event, spent)


def _settle(
    state: TaskState,
    report: Ended | Fenced,
    ending: Ending,
    then: Then,
    event: Event,
    spent: Spent,
    late: bool = False,
) -> tuple[TaskState, Effects]:
    assert isinstance(state.stage, Pending | Offered | Running | Stopping), state.stage
    ask = Settle(
        key=state.spec.key,
        number=report.number,
        cluster=report.cluster,
        ending=ending,
        then=then,
        at=event.at,
        started_at=report.started_at if isinstance(report, Ended) else None,
        ended_at=report.at if isinstance(report, Ended) else None,
        late=late,
    )
    stage = Settling(
        back=state.stage,
        settle=ask,
        spent=spent,
        machine=report.machine,
    )
    return state.model_copy(update={"stage": stage}), (ask,)


def _releases(ending: Ending) -> bool:
    return ending.kind not in (EndKind.FENCED, EndKind.ABANDONED)


def _late_success(
    state: TaskState, number: int, ending: Ending, at: datetime
) -> tuple[TaskState, Effects]:
    """An idempotent task may take the success of a closed number; the replacement is stopped."""
    wanted = ending.success and state.spec.accept_late_success and not state.cancelled
    superseded = isinstance(state.stage, Stopping) and state.stage.then is not None
    if not wanted or superseded:
        return state, ()
    outcome = Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=number, detail="late success")
    return _withdraw(state, WithdrawCause.LATE_SUCCESS, outcome, at)


def _counted_late(state: TaskState) -> TaskState:
    return state.model_copy(update={"late": state.late + 1})


def _recorded(state: TaskState, record: AttemptRecord) -> TaskState:
    others = [a for a in state.attempts if a.number != record.number]
    kept = sorted([*others, record], key=lambda a: a.number)[-ATTEMPTS_SHOWN_MAX:]
    return state.model_copy(update={"attempts": tuple(kept)})
