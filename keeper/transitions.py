"""How one attempt moves between its stages, and what its ending says. Pure, like its caller."""

from dataclasses import replace

from domain.attempt import Ending, EndKind, StopCause, Usage
from domain.reasons import Reason
from keeper.stages import (
    Effects,
    Exit,
    Freeze,
    Frozen,
    Kill,
    Leaving,
    Live,
    Running,
    Stage,
    Starting,
    Stopping,
    Terminate,
)

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
"""The reason that an ending by a stop order carries."""


def due_ms(live: Live) -> int | None:
    """When time alone changes this attempt: its run timeout, or the end of its grace."""
    match live.stage:
        case Running(since_ms, ran_ms) if live.run_timeout_ms is not None:
            return since_ms + live.run_timeout_ms - ran_ms
        case Stopping(kill_at_ms=kill_at_ms, killed=False):
            return kill_at_ms
        case _:
            return None


def halted(live: Live, deadline_ms: int) -> tuple[Live, Effects]:
    """The deadline has passed: nothing of it may run. A grace cannot go on, so it ends."""
    match live.stage:
        case Starting():
            return replace(live, stage=Frozen()), (Freeze(live.attempt),)
        case Running(since_ms, ran_ms):
            # Up to the deadline only: a keeper that was itself held up slept through the rest.
            ran_ms += max(0, deadline_ms - since_ms)
            return replace(live, stage=Frozen(ran_ms)), (Freeze(live.attempt),)
        case Stopping(killed=False):
            return killed(live)
        case _:
            return live, ()


def killed(live: Live) -> tuple[Live, Effects]:
    """Its grace is over."""
    assert isinstance(live.stage, Stopping)
    return replace(live, stage=replace(live.stage, killed=True)), (Kill(live.attempt),)


def told_to_stop(live: Live, cause: StopCause, kill_at_ms: int) -> tuple[Live, Effects]:
    """The first cause stays, except that CANCEL overrides; the earlier kill stays."""
    match live.stage:
        case Starting() | Running():
            stage = Stopping(cause, kill_at_ms)
            return replace(live, stage=stage), (Terminate(live.attempt),)
        case Frozen():
            stage = Stopping(cause, kill_at_ms, killed=True)
            return replace(live, stage=stage), (Kill(live.attempt),)
        case Stopping() as stage:
            first = stage.cause if cause is not StopCause.CANCEL else cause
            kill_at_ms = min(stage.kill_at_ms, kill_at_ms)
            return replace(live, stage=replace(stage, cause=first, kill_at_ms=kill_at_ms)), ()
        case Leaving():
            return live, ()


def closed(live: Live, now_ms: int) -> tuple[Live, Effects]:
    """Its number counts no more: kill it at once, frozen or not, whatever grace it had."""
    match live.stage:
        case Leaving() | Stopping(killed=True):
            return live, ()
        case Stopping():
            return killed(live)
        case Starting() | Running() | Frozen():
            stage = Stopping(StopCause.SUPERSEDED, now_ms, killed=True)
            return replace(live, stage=stage), (Kill(live.attempt),)


def thawed(live: Live, frozen: Frozen, now_ms: int) -> Stage:
    """It goes on from here."""
    return Starting() if live.begun is None else Running(now_ms, frozen.ran_ms)


def exited_by_itself(seen: Exit) -> Ending:
    """No stop came before the exit."""
    reason = None
    if seen.by_signal:
        reason = Reason.KILLED_BY_SIGNAL
    elif seen.exit_code != 0:
        reason = Reason.NONZERO_EXIT
    return Ending(kind=EndKind.EXITED, exit_code=seen.exit_code, reason=reason, usage=seen.usage)


def stopped(cause: StopCause, seen: Exit | None) -> Ending:
    """Stopped, whatever the exit code; without an exit it never started."""
    return Ending(
        kind=EndKind.STOPPED,
        exit_code=None if seen is None else seen.exit_code,
        reason=STOP_REASON[cause],
        stop_cause=cause,
        usage=Usage() if seen is None else seen.usage,
    )
