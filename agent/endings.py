"""How attempts end: what is journalled, reported, handed over, remembered and forgotten."""

from dataclasses import replace
from datetime import datetime

from agent.entries import Acknowledged, Closed, EndSeen, Released, StartSeen, StopTaken
from agent.state import (
    Attempt,
    Effect,
    Effects,
    Event,
    HandOver,
    Machine,
    Record,
    Remembered,
    Report,
    ReportTaken,
    Stage,
    State,
    Step,
    ToKeeper,
    WorkflowGone,
    no_longer_running,
    remembered,
    removed,
    with_attempt,
)
from agent.table import Table
from domain.attempt import Ending, EndKind, StopCause
from domain.ids import split_attempt_id
from domain.protocol import (
    AttemptEnded,
    AttemptStarted,
    Ended,
    Forget,
    Orphan,
    StartAttempt,
    Started,
    StopAttempt,
)
from domain.reasons import Reason

STOP_REASON = {
    StopCause.CANCEL: Reason.CANCELLED_BY_USER,
    StopCause.PREEMPT: Reason.PREEMPTED,
    StopCause.DRAIN: Reason.DRAINED,
    StopCause.RUN_TIMEOUT: Reason.RUN_TIMEOUT,
    StopCause.OFFER_UNANSWERED: Reason.OFFER_UNANSWERED,
    StopCause.SUPERSEDED: Reason.SUPERSEDED,
    StopCause.SHUT_DOWN: Reason.SHUT_DOWN,
    StopCause.WORKFLOW_GONE: Reason.WORKFLOW_GONE,
}
"""The reason that an ending by a stop order carries when its keeper has not given one."""


def lost(reason: Reason) -> Ending:
    """Nothing is known of how it ended."""
    return Ending(kind=EndKind.LOST, reason=reason)


def stopped(cause: StopCause, detail: str = "") -> Ending:
    """Stopped, as far as this agent can say."""
    return Ending(kind=EndKind.STOPPED, reason=STOP_REASON[cause], stop_cause=cause, detail=detail)


# --- an ending is known ---------------------------------------------------------------------------


def end(state: State, attempt: Attempt, ending: Ending, event: Event) -> Step:
    """It has certainly ended and holds no room."""
    state = removed(state, attempt)
    record = _record(attempt, ending, event.at)
    return keep(state, record)


def give_up(state: State, attempt: Attempt, ending: Ending, event: Event) -> Step:
    """It cannot run, but its room is not known to be free: report it, and keep a remnant."""
    remnant = replace(attempt, stage=Stage.REMNANT, reported=True)
    state = no_longer_running(with_attempt(state, remnant), attempt)
    return keep(state, _record(attempt, ending, event.at))


def close(state: State, attempt: Attempt, machine: Machine) -> Step:
    """Its number counts no more: it is killed wherever it still is, and its end reported then."""
    if attempt.stage is Stage.REMNANT:
        return state, _kill(attempt, machine)
    remnant = replace(attempt, stage=Stage.REMNANT)
    state = no_longer_running(with_attempt(state, remnant), attempt)
    return state, (Record(Closed(attempt=attempt.id)), *_kill(attempt, machine))


def _kill(attempt: Attempt, machine: Machine) -> Effects:
    if machine.connection is None:
        return ()  # The grant after its next hello lists it.
    return (ToKeeper(attempt.machine, stop_of(replace(attempt, stage=Stage.REMNANT))),)


def stop_live(state: State, attempt: Attempt, cause: StopCause, grace_s: int) -> Step:
    """The first cause stays, except that CANCEL overrides; the keeper is told in any case."""
    if attempt.cause is not None and cause is not StopCause.CANCEL:
        cause = attempt.cause
    fresh = attempt.cause is not cause
    attempt = replace(attempt, stage=Stage.STOPPING, cause=cause, grace_s=grace_s)
    stop = ToKeeper(attempt.machine, stop_of(attempt))
    state = replace(with_attempt(state, attempt), unannounced=state.unannounced.without(attempt.id))
    if not fresh:
        return state, (stop,)
    return state, (Record(StopTaken(attempt=attempt.id, cause=cause, grace_s=grace_s)), stop)


def stop_of(attempt: Attempt) -> StopAttempt:
    """The message that ends it: with grace for what was stopped, without for what is closed."""
    if attempt.stage is Stage.REMNANT or attempt.cause is None:
        return StopAttempt(attempt=attempt.id, cause=StopCause.SUPERSEDED, grace_s=0)
    return StopAttempt(attempt=attempt.id, cause=attempt.cause, grace_s=attempt.grace_s)


def start_of(state: State, attempt: Attempt) -> StartAttempt:
    """The message that starts it, safe to repeat: keepers know their numbers."""
    assert attempt.spec is not None, attempt
    return StartAttempt(
        attempt=attempt.id,
        key=attempt.key,
        number=attempt.number,
        cluster=state.cluster,
        spec=attempt.spec,
    )


def keep(state: State, record: Remembered) -> Step:
    """Journal and remember an ending, and report it until it is acknowledged."""
    entry = EndSeen(
        key=record.key,
        number=record.number,
        machine=record.machine,
        ending=record.ending,
        at=record.at,
        started_at=record.started_at,
        gone=record.gone,
        remains=record.id in state.live,
    )
    return remember(state, record), (Record(entry), told(state, record))


def told(state: State, record: Remembered) -> Effect:
    """To the workflow; when that is gone, to the cluster."""
    if record.gone:
        orphan = Orphan(
            key=record.key,
            number=record.number,
            machine=record.machine,
            ending=record.ending,
            at=record.at,
        )
        return HandOver(record.id, orphan)
    ended = Ended(
        number=record.number,
        cluster=state.cluster,
        machine=record.machine,
        at=record.at,
        ending=record.ending,
        started_at=record.started_at,
    )
    return Report(record.id, ended)


def told_again(state: State, record: Remembered) -> Step:
    """Somebody may have missed the report."""
    return keep(state, replace(record, acknowledged=False, gone=False))


def remember(state: State, record: Remembered) -> State:
    """The newest; beyond the bound the older half goes, but for what nobody has acknowledged."""
    ended = state.ended.put(record.id, record)
    before = state.ended_before.without(record.id)
    if len(ended) > state.terms.remembered_max // 2:
        unheard = [(old.id, old) for old in before.values() if not old.acknowledged]
        ended, before = Table(unheard), ended
    return replace(state, ended=ended, ended_before=before)


def _record(attempt: Attempt, ending: Ending, at: datetime) -> Remembered:
    return Remembered(
        id=attempt.id,
        key=attempt.key,
        number=attempt.number,
        machine=attempt.machine,
        ending=ending,
        at=at,
        started_at=attempt.started_at,
    )


# --- keepers' words -------------------------------------------------------------------------------


def keeper_saw_start(state: State, said: AttemptStarted, event: Event) -> Step:
    """Announced later, if it lives long enough for that to be worth a message."""
    attempt = state.live.get(said.attempt)
    if attempt is None or attempt.started_at is not None:
        return state, ()
    stage = Stage.RUNNING if attempt.stage is Stage.STARTING else attempt.stage
    attempt = replace(attempt, started_at=said.at, stage=stage)
    state = with_attempt(state, attempt)
    if stage is Stage.RUNNING:
        due_ms = event.now_ms + state.terms.started_after_ms
        state = replace(state, unannounced=state.unannounced.put(attempt.id, due_ms))
    return state, (Record(StartSeen(attempt=attempt.id, at=said.at)),)


def keeper_saw_end(state: State, machine: str, said: AttemptEnded) -> Step:
    """The keeper's word is the last one: it also replaces a loss that was only concluded."""
    forget = ToKeeper(machine, Forget(attempts=(said.attempt,)))
    attempt = state.live.get(said.attempt)
    known = remembered(state, said.attempt)
    if attempt is not None:
        state = removed(state, attempt)
        if attempt.reported and said.ending.kind is not EndKind.EXITED:
            return state, (Record(Released(attempt=attempt.id)), forget)
    elif known is not None and not _only_concluded(known):
        return state, (forget,)
    key, number = split_attempt_id(said.attempt)
    record = Remembered(
        id=said.attempt,
        key=key,
        number=number,
        machine=machine,
        ending=said.ending,
        at=said.at,
        started_at=said.started_at,
    )
    state, effects = keep(state, record)
    return state, (*effects, forget)


def _only_concluded(known: Remembered) -> bool:
    return known.ending.kind is EndKind.LOST


# --- answers of Temporal --------------------------------------------------------------------------


def report_taken(state: State, event: ReportTaken) -> Step:
    """What was acknowledged may have been replaced meanwhile; then nothing is settled."""
    report = event.report
    if isinstance(report, Report) and isinstance(report.message, Started):
        attempt = state.live.get(report.attempt)
        if attempt is None or attempt.announced:
            return state, ()
        state = with_attempt(state, replace(attempt, announced=True))
        started = StartSeen(attempt=attempt.id, at=report.message.at, announced=True)
        return state, (Record(started),)
    record = remembered(state, report.attempt)
    if record is None or record.acknowledged or told(state, record) != report:
        return state, ()
    state = _replaced(state, replace(record, acknowledged=True))
    return state, (Record(Acknowledged(attempt=record.id)),)


def workflow_gone(state: State, event: WorkflowGone) -> Step:
    """Nobody waits for it: stop it if it lives, and hand it over when it has ended."""
    report = event.report
    attempt = state.live.get(report.attempt)
    if attempt is not None and not attempt.reported:
        return _stop_for_nobody(state, attempt)
    record = remembered(state, report.attempt)
    if record is None or record.acknowledged or record.gone or told(state, record) != report:
        return state, ()
    return keep(state, replace(record, gone=True))


def _stop_for_nobody(state: State, attempt: Attempt) -> Step:
    """Its ending is reported like any other: should the workflow live again, it hears of it."""
    if attempt.stage is Stage.REMNANT:
        return state, ()
    grace_s = 0 if attempt.spec is None else attempt.spec.grace_s
    return stop_live(state, attempt, attempt.cause or StopCause.WORKFLOW_GONE, grace_s)


def _replaced(state: State, record: Remembered) -> State:
    """In the half where it stands: an acknowledgement does not make it younger."""
    if record.id in state.ended:
        return replace(state, ended=state.ended.put(record.id, record))
    return replace(state, ended_before=state.ended_before.put(record.id, record))
