"""What a keeper decides: starts, stops, the lease's deadline, freezing, and how an attempt ended.

Pure: `step(state, event, instant) -> (state, effects)`. Instants are passed in and are of one
machine's clocks; knows nothing of processes, sockets or files. Time acts first in every step, so a
lease that has passed has passed for whatever comes after it.
"""

from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from domain.attempt import Ending, EndKind, StopCause
from domain.protocol import (
    AttemptEnded,
    AttemptStarted,
    Forget,
    KeeperGrant,
    LeaseAnswer,
    LeaseQuestion,
    StartAttempt,
    StopAttempt,
)
from domain.reasons import Reason
from domain.task import OnLoss
from keeper.stages import (
    AgentEvent,
    Begun,
    Cleared,
    Connected,
    Effect,
    Effects,
    Event,
    Exit,
    Exited,
    Freeze,
    Frozen,
    Instant,
    Keeper,
    Kill,
    Launch,
    Launched,
    LaunchFailed,
    Lease,
    Leaving,
    Live,
    MoveDeadline,
    OwnEvent,
    QuestionDue,
    RecordEnded,
    RecordForgotten,
    Running,
    Send,
    ShutDown,
    Stage,
    Starting,
    Stopping,
    Terminate,
    Thaw,
    Ticked,
)
from keeper.transitions import (
    closed,
    due_ms,
    exited_by_itself,
    halted,
    killed,
    stopped,
    thawed,
    told_to_stop,
)

__all__ = [
    "AgentEvent",
    "Begun",
    "Cleared",
    "Connected",
    "Effect",
    "Effects",
    "Event",
    "Exit",
    "Exited",
    "Freeze",
    "Frozen",
    "Instant",
    "Keeper",
    "Kill",
    "Launch",
    "LaunchFailed",
    "Launched",
    "Lease",
    "Leaving",
    "Live",
    "MoveDeadline",
    "OwnEvent",
    "QuestionDue",
    "RecordEnded",
    "RecordForgotten",
    "Running",
    "Send",
    "ShutDown",
    "Stage",
    "Starting",
    "Stopping",
    "Terminate",
    "Thaw",
    "Ticked",
    "check",
    "died_with_keeper",
    "next_due_ms",
    "restored",
    "step",
]

LIVE_ATTEMPTS_MAX = 10_000
"""Attempts at once on one machine; one more ends with CANNOT_START."""
TOMBSTONES_MAX = 2_000
"""Numbers that may not start any more and are remembered; the oldest is dropped first."""
QUESTIONS_OPEN_MAX = 16
"""Lease questions whose answer still counts."""


def step(state: Keeper, event: Event, instant: Instant) -> tuple[Keeper, Effects]:
    """The next state and what to do, in order."""
    state, due = _pass_time(state, instant.boot_ms)
    state, effects = _handle(state, event, instant)
    return state, due + effects


def restored(endings: tuple[AttemptEnded, ...], tombstones: tuple[AttemptEnded, ...]) -> Keeper:
    """The state after a restart: no lease, nothing live, every unforgotten ending to be sent."""
    return Keeper(
        ended={ended.attempt: ended for ended in endings},
        tombstones={ended.attempt: ended for ended in tombstones[-TOMBSTONES_MAX:]},
    )


def died_with_keeper(attempt: str, at: datetime) -> AttemptEnded:
    """The tombstone of an attempt that an earlier keeper had started and taken with it."""
    ending = Ending(kind=EndKind.LOST, reason=Reason.KEEPER_LOST)
    return AttemptEnded(attempt=attempt, ending=ending, started_at=None, at=at)


def next_due_ms(state: Keeper) -> int | None:
    """The next instant at which time alone changes something; None when none does."""
    dues = [due for live in state.live.values() if (due := due_ms(live)) is not None]
    if state.lease is not None:
        dues.append(state.lease.deadline_ms)
    return min(dues, default=None)


def check(state: Keeper) -> None:
    """What holds after every step; a violation is our bug."""
    assert not state.live.keys() & state.ended.keys(), "live and ended"
    assert not state.live.keys() & state.tombstones.keys(), "live and buried"
    assert len(state.live) <= LIVE_ATTEMPTS_MAX
    assert len(state.tombstones) <= TOMBSTONES_MAX
    assert len(state.questions) <= QUESTIONS_OPEN_MAX
    assert state.lease is None or state.lease.epoch == state.epoch
    for attempt, live in state.live.items():
        assert attempt == live.attempt
        assert not (live.waits and isinstance(live.stage, Frozen)), "a waiting attempt is frozen"
        if state.lease is None and not live.waits:
            assert isinstance(live.stage, Frozen | Leaving | Stopping), "runs without a lease"
            assert not isinstance(live.stage, Stopping) or live.stage.killed, "grace without lease"
        if state.shutting_down:
            assert isinstance(live.stage, Leaving | Stopping), "runs through a shutdown"


def _pass_time(state: Keeper, now_ms: int) -> tuple[Keeper, Effects]:
    """What time alone does: the deadline, run timeouts, the end of a grace."""
    first_ms = next_due_ms(state)
    if first_ms is None or now_ms < first_ms:
        return state, ()
    effects: list[Effect] = []
    lease = state.lease
    live = dict(state.live)
    if lease is not None and now_ms >= lease.deadline_ms:
        for attempt in [name for name, held in live.items() if not held.waits]:
            live[attempt], done = halted(live[attempt], min(now_ms, lease.deadline_ms))
            effects += done
        lease = None
    for attempt, held in state.live.items():
        due = due_ms(live[attempt])
        if due is None or now_ms < due:
            continue
        if isinstance(live[attempt].stage, Running):
            # What was due is the run timeout; the grace begins now, not when it was due.
            live[attempt], done = told_to_stop(
                live[attempt], StopCause.RUN_TIMEOUT, now_ms + held.grace_ms
            )
        else:
            live[attempt], done = killed(live[attempt])
        effects += done
    return replace(state, live=live, lease=lease), tuple(effects)


def _handle(state: Keeper, event: Event, instant: Instant) -> tuple[Keeper, Effects]:
    match event:
        case Ticked():
            return state, ()
        case StartAttempt():
            return _start(state, event, instant)
        case StopAttempt():
            return _stop(state, event, instant)
        case Launched() | LaunchFailed() | Exited() | Cleared():
            return _driven(state, event, instant)
        case Forget():
            return _forget(state, event)
        case QuestionDue():
            return _ask(state, instant.boot_ms)
        case LeaseAnswer():
            return _extend(state, event)
        case KeeperGrant():
            return _grant(state, event, instant.boot_ms)
        case Connected():
            started = [_started(live) for live in state.live.values() if live.begun is not None]
            return state, (*map(Send, started), *map(Send, state.ended.values()))
        case ShutDown():
            return _shut_down(state, event, instant.boot_ms)


def _start(state: Keeper, start: StartAttempt, instant: Instant) -> tuple[Keeper, Effects]:
    """Start it, unless the number is known in any way or there is no lease."""
    if start.attempt in state.live:
        return state, ()
    known = state.ended.get(start.attempt) or state.tombstones.get(start.attempt)
    if known is not None:
        return state, (Send(known),)
    if state.shutting_down:
        # Its order crossed our goodbye: said at once that it never started, it is placed elsewhere.
        never = Live(start.attempt, grace_ms=0, run_timeout_ms=None, waits=False)
        return _ended(state, never, stopped(StopCause.SHUT_DOWN, None), instant)
    if state.lease is None:
        return state, ()
    spec = start.spec
    live = Live(
        attempt=start.attempt,
        grace_ms=spec.grace_s * 1_000,
        run_timeout_ms=None if spec.run_timeout_s is None else spec.run_timeout_s * 1_000,
        waits=spec.on_loss is OnLoss.WAIT,
    )
    if len(state.live) >= LIVE_ATTEMPTS_MAX:
        detail = f"{LIVE_ATTEMPTS_MAX} attempts run on this machine already"
        ending = Ending(kind=EndKind.EXITED, reason=Reason.CANNOT_START, detail=detail)
        return _ended(state, live, ending, instant)
    return _with(state, live), (Launch(start),)


def _stop(state: Keeper, stop: StopAttempt, instant: Instant) -> tuple[Keeper, Effects]:
    live = state.live.get(stop.attempt)
    if live is not None:
        live, effects = told_to_stop(live, stop.cause, instant.boot_ms + stop.grace_s * 1_000)
        return _with(state, live), effects
    known = state.ended.get(stop.attempt) or state.tombstones.get(stop.attempt)
    if known is not None:
        return state, (Send(known),)
    # Never seen: the ending is the tombstone, so a start that comes later finds it.
    never = Live(stop.attempt, grace_ms=0, run_timeout_ms=None, waits=False)
    return _ended(state, never, stopped(stop.cause, None), instant)


def _driven(
    state: Keeper, event: Launched | LaunchFailed | Exited | Cleared, instant: Instant
) -> tuple[Keeper, Effects]:
    """The driver's news of an attempt. Exit against stop is decided here, by which came first."""
    live = state.live.get(event.attempt)
    assert live is not None, f"{event!r} of an attempt that is not live"
    begun = not isinstance(event, Launched | LaunchFailed)
    assert begun is (live.begun is not None), f"{event!r} came twice, or too early"
    match event, live.stage:
        case Launched(), stage:
            if isinstance(stage, Starting):
                stage = Running(since_ms=instant.boot_ms)
            live = replace(live, stage=stage, begun=Begun(instant.boot_ms, instant.at))
            return _with(state, live), (Send(_started(live)),)
        case LaunchFailed(), Stopping(cause=cause):
            return _ended(state, live, stopped(cause, None), instant)
        case LaunchFailed(_, reason, detail), _:
            ending = Ending(kind=EndKind.EXITED, reason=reason, detail=detail)
            return _ended(state, live, ending, instant)
        case Exited(_, seen), Stopping(exit=None) as stopping:
            return _with(state, replace(live, stage=replace(stopping, exit=seen))), ()
        case Exited(_, seen), Running() | Frozen():
            return _with(state, replace(live, stage=Leaving(seen))), (Kill(live.attempt),)
        case Cleared(), Leaving(seen):
            return _ended(state, live, exited_by_itself(seen), instant)
        case Cleared(), Stopping(cause=cause, exit=Exit() as seen):
            return _ended(state, live, stopped(cause, seen), instant)
    raise AssertionError((live.stage, event))


def _ended(state: Keeper, live: Live, ending: Ending, instant: Instant) -> tuple[Keeper, Effects]:
    """Nothing of it runs any more: journal the ending, then say so until it is forgotten."""
    started_at = None
    if live.begun is not None:
        started_at = live.begun.at
        wall_ms = max(0, instant.boot_ms - live.begun.boot_ms)
        usage = ending.usage.model_copy(update={"wall_ms": wall_ms})
        ending = ending.model_copy(update={"usage": usage})
    ended = AttemptEnded(attempt=live.attempt, ending=ending, started_at=started_at, at=instant.at)
    others = {name: held for name, held in state.live.items() if name != live.attempt}
    state = replace(state, live=others, ended={**state.ended, live.attempt: ended})
    return state, (RecordEnded(ended), Send(ended))


def _forget(state: Keeper, forget: Forget) -> tuple[Keeper, Effects]:
    """Drop the endings the agent has, but remember that these numbers are over."""
    over = {name: state.ended[name] for name in forget.attempts if name in state.ended}
    if not over:
        return state, ()
    ended = {name: kept for name, kept in state.ended.items() if name not in over}
    tombstones = _newest({**state.tombstones, **over}, TOMBSTONES_MAX)
    return replace(state, ended=ended, tombstones=tombstones), (RecordForgotten(tuple(over)),)


def _ask(state: Keeper, now_ms: int) -> tuple[Keeper, Effects]:
    number = state.questions_asked + 1
    questions = _newest({**state.questions, number: now_ms}, QUESTIONS_OPEN_MAX)
    question = LeaseQuestion(
        question=number,
        epoch=0 if state.lease is None else state.lease.epoch,
        running=tuple(state.live),
        leaving=state.shutting_down,
    )
    return replace(state, questions=questions, questions_asked=number), (Send(question),)


def _extend(state: Keeper, answer: LeaseAnswer) -> tuple[Keeper, Effects]:
    """Only a lease that has not passed, and only of the same epoch, counted from the question."""
    sent_ms = state.questions.get(answer.question)
    if state.lease is None or answer.epoch != state.lease.epoch or sent_ms is None:
        return state, ()
    deadline_ms = sent_ms + answer.remaining_ms
    if deadline_ms <= state.lease.deadline_ms:
        return state, ()
    lease = replace(state.lease, deadline_ms=deadline_ms)
    return replace(state, lease=lease), (MoveDeadline(deadline_ms),)


def _grant(state: Keeper, grant: KeeperGrant, now_ms: int) -> tuple[Keeper, Effects]:
    """Kill what is closed in any case; begin the lease and thaw the rest if it has not passed."""
    if grant.epoch < state.epoch:
        return state, ()
    live = dict(state.live)
    effects: list[Effect] = []
    for attempt in grant.closed:
        if attempt in live:
            live[attempt], done = closed(live[attempt], now_ms)
            effects += done
    sent_ms = state.questions.get(grant.question)
    if sent_ms is None or sent_ms + grant.remaining_ms <= now_ms:
        return replace(state, live=live), tuple(effects)
    deadline_ms = sent_ms + grant.remaining_ms
    if state.lease is not None and state.lease.epoch == grant.epoch:
        deadline_ms = max(deadline_ms, state.lease.deadline_ms)
    effects.append(MoveDeadline(deadline_ms))
    for attempt, held in live.items():
        if isinstance(held.stage, Frozen):
            live[attempt] = replace(held, stage=thawed(held, held.stage, now_ms))
            effects.append(Thaw(attempt))
    lease = Lease(grant.epoch, deadline_ms)
    return replace(state, live=live, lease=lease, epoch=grant.epoch), tuple(effects)


def _shut_down(state: Keeper, event: ShutDown, now_ms: int) -> tuple[Keeper, Effects]:
    """Say goodbye first, so that nothing that stops is offered to us again."""
    state, goodbye = _ask(replace(state, shutting_down=True), now_ms)
    live = dict(state.live)
    effects: list[Effect] = list(goodbye)
    for attempt, held in state.live.items():
        kill_at_ms = now_ms + min(held.grace_ms, event.grace_ms_max)
        live[attempt], done = told_to_stop(held, StopCause.SHUT_DOWN, kill_at_ms)
        effects += done
    return replace(state, live=live), tuple(effects)


def _started(live: Live) -> AttemptStarted:
    assert live.begun is not None
    return AttemptStarted(attempt=live.attempt, at=live.begun.at)


def _with(state: Keeper, live: Live) -> Keeper:
    return replace(state, live={**state.live, live.attempt: live})


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _newest(kept: dict[_Key, _Value], size: int) -> dict[_Key, _Value]:
    for oldest in list(kept)[: max(0, len(kept) - size)]:
        del kept[oldest]
    return kept
