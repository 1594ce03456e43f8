"""Keepers as the agent sees them: their hellos, their leases, and when silence becomes loss.

The agent is to its keepers what the scheduler is to the agent. Knows nothing of sockets.
"""

from dataclasses import replace

from agent.endings import (
    end,
    give_up,
    keep,
    keeper_saw_end,
    keeper_saw_start,
    lost,
    start_of,
    stop_live,
    stop_of,
    stopped,
)
from agent.entries import Admitted, Closed, MachineSeen, Released
from agent.state import (
    Attempt,
    Connected,
    Disconnected,
    Effects,
    Event,
    Machine,
    Record,
    Remembered,
    Report,
    Said,
    Stage,
    State,
    Step,
    ToKeeper,
    Unaccounted,
    added,
    attempts_on,
    leased,
    new_attempt,
    ready,
    remembered,
    removed,
    with_attempt,
    with_machine,
)
from domain.attempt import Ending, StopCause
from domain.ids import split_attempt_id
from domain.protocol import (
    AttemptEnded,
    AttemptStarted,
    KeeperGrant,
    LeaseAnswer,
    LeaseQuestion,
    Started,
)
from domain.reasons import Reason
from domain.task import OnLoss

ANNOUNCED_MAX = 500
"""In one step; the rest has its turn at the next tick."""

# --- contact --------------------------------------------------------------------------------------


def connected(state: State, event: Event, what: Connected) -> Step:
    """What the keeper runs is compared with what we think it runs; losses wait for its endings."""
    report = what.hello.machine
    old = state.machines.get(report.name) or Machine(report, heard_ms=event.now_ms)
    fresh = report.name not in state.machines or old.report != report
    machine = replace(
        old,
        report=report,
        heard_ms=event.now_ms,
        connection=what.connection,
        question=None,
        epoch=0,
        # One that is being stopped stays so, whatever its connection does; its successor is not.
        leaving=what.hello.leaving or (old.leaving and old.report.instance == report.instance),
        suspect=False,
        fenced=False,
    )
    state = with_machine(state, machine, news=True)
    effects: Effects = (Record(MachineSeen(report=report)),) if fresh else ()
    for attempt in what.hello.live:
        state, more = _found_live(state, attempt, machine)
        effects += more
    machine = state.machines[report.name]
    return state, (*effects, *_stops(state, machine, Stage.STOPPING, Stage.REMNANT))


def _stops(state: State, machine: Machine, *stages: Stage) -> Effects:
    """To its attempts in these stages; a keeper that never had one buries it and says so."""
    return tuple(
        ToKeeper(machine.report.name, stop_of(known))
        for known in attempts_on(state, machine)
        if known.instance == machine.report.instance and known.stage in stages
    )


def _found_live(state: State, attempt: str, machine: Machine) -> Step:
    """The keeper has it, whatever we thought."""
    known = state.live.get(attempt)
    if known is not None:
        if known.instance == machine.report.instance:
            return state, ()
        return with_attempt(state, replace(known, instance=machine.report.instance)), ()
    over = remembered(state, attempt) is not None
    key, number = split_attempt_id(attempt)
    found = new_attempt(key, number, machine.report, None)
    found = replace(found, stage=Stage.RUNNING, announced=True, reported=over)
    entry = Admitted(
        key=key,
        number=number,
        machine=machine.report.name,
        instance=found.instance,
        spec=None,
    )
    if over or attempt in state.closed or state.by_task.get(key) is not None:
        found = replace(found, stage=Stage.REMNANT)
        return added(state, found), (Record(entry), Record(Closed(attempt=attempt)))
    state = added(state, found)
    doubt = state.unaccounted.get(attempt)
    if doubt is None or doubt.cause is None:
        return state, (Record(entry),)
    state, effects = stop_live(state, found, doubt.cause, 0)
    return state, (Record(entry), *effects)


def disconnected(state: State, event: Disconnected) -> Step:
    """Silence is counted from what was heard last, not from here."""
    machine = state.machines.get(event.machine)
    if machine is None or machine.connection != event.connection:
        return state, ()
    gone = replace(machine, connection=None, question=None, epoch=0)
    return with_machine(state, gone, news=True), ()


def said(state: State, event: Event, what: Said) -> Step:
    """A message of a connection that another has followed is still true of its attempt."""
    machine = state.machines.get(what.machine)
    match what.message:
        case AttemptStarted() as started:
            return keeper_saw_start(state, started, event)
        case AttemptEnded() as ended:
            if machine is not None and _stopped_by_its_end(state, machine, ended):
                state = with_machine(state, replace(machine, leaving=True), news=True)
            return keeper_saw_end(state, what.machine, ended)
        case LeaseQuestion() as question:
            if machine is None or machine.connection != what.connection:
                return state, ()
            return _asked(state, machine, question, event)
        case _:
            return state, ()  # Answers about logs are the shell's business.


def _stopped_by_its_end(state: State, machine: Machine, ended: AttemptEnded) -> bool:
    """Keepers of the version before say no goodbye: their first ending by a shutdown is it.

    Only where the attempt was given to this instance: a keeper also tells the endings that its
    predecessor has kept, and those are about the predecessor.
    """
    attempt = state.live.get(ended.attempt)
    if attempt is None or ended.ending.stop_cause is not StopCause.SHUT_DOWN:
        return False
    return attempt.id in machine.attempts and attempt.instance == machine.report.instance


# --- leases ---------------------------------------------------------------------------------------


def _asked(state: State, machine: Machine, question: LeaseQuestion, event: Event) -> Step:
    """Answer with at most what is left of our own lease, counted from when the keeper asked."""
    back = machine.suspect or machine.fenced
    goodbye = question.leaving and not machine.leaving
    machine = replace(
        machine,
        heard_ms=event.now_ms,
        question=question.question,
        asked_ms=event.now_ms,
        leaving=machine.leaving or question.leaving,
        suspect=False,
        fenced=False,
    )
    state = with_machine(state, machine, news=back or goodbye)
    state, effects = _bereaved(state, machine, event)
    state, more = _resolved(state, machine.report.name, event)
    effects += more
    machine = state.machines[machine.report.name]
    if back:  # What was given up meanwhile may still run there, or never have been started.
        effects += _stops(state, machine, Stage.REMNANT)
    granted = machine.epoch == state.epoch == question.epoch
    if leased(state, event.now_ms) and not granted:
        state, more = grant_keeper(state, machine, event)
        return state, (*effects, *more)
    remaining_ms = 0
    if leased(state, event.now_ms):
        remaining_ms = min(state.lease_until_ms - event.now_ms, state.terms.keeper_lease_ms)
        state = with_machine(state, _extended(machine, event.now_ms + remaining_ms))
    answer = LeaseAnswer(question=question.question, epoch=state.epoch, remaining_ms=remaining_ms)
    return state, (*effects, ToKeeper(machine.report.name, answer))


def grant_keeper(state: State, machine: Machine, event: Event) -> Step:
    """Begin a keeper's lease as answer to its last question, with every number it must kill.

    What it had been told to start while it had no lease, it dropped: it is told again.
    """
    if machine.connection is None or machine.question is None or not leased(state, event.now_ms):
        return state, ()
    remaining_ms = min(state.lease_until_ms - machine.asked_ms, state.terms.keeper_lease_ms)
    if machine.asked_ms + remaining_ms <= event.now_ms:
        return state, ()
    here = attempts_on(state, machine)
    grant = KeeperGrant(
        question=machine.question,
        epoch=state.epoch,
        remaining_ms=remaining_ms,
        closed=tuple(known.id for known in here if known.stage is Stage.REMNANT),
    )
    starts = [
        ToKeeper(machine.report.name, start_of(state, known))
        for known in here
        if known.stage is Stage.STARTING and known.spec is not None
    ]
    was_ready = ready(state, machine, event.now_ms)
    machine = _extended(replace(machine, epoch=state.epoch), machine.asked_ms + remaining_ms)
    state = with_machine(state, machine, news=not was_ready)
    return state, (ToKeeper(machine.report.name, grant), *starts)


def _extended(machine: Machine, until_ms: int) -> Machine:
    return replace(machine, lease_until_ms=max(machine.lease_until_ms, until_ms))


# --- loss -----------------------------------------------------------------------------------------


def _bereaved(state: State, machine: Machine, event: Event) -> Step:
    """A keeper's attempts die with it. By its first question it has sent every ending it knows."""
    effects: Effects = ()
    for attempt in attempts_on(state, machine):
        if attempt.instance == machine.report.instance:
            continue
        if attempt.reported:
            state = removed(state, attempt)
            effects += (Record(Released(attempt=attempt.id)),)
            continue
        ending = lost(Reason.KEEPER_LOST) if attempt.cause is None else stopped(attempt.cause)
        state, more = end(state, attempt, ending, event)
        effects += more
    return state, effects


def look(state: State, event: Event) -> Step:
    """Who is silent, whether too many are, and whose deadline has certainly passed."""
    now_ms, terms = event.now_ms, state.terms
    before_ms = now_ms if state.looked_ms is None else state.looked_ms
    if state.looked_ms is not None and now_ms - before_ms < terms.look_ms:
        return state, ()
    if now_ms - before_ms > terms.look_ms + terms.late_ms:
        # We were away ourselves: what we did not hear proves nothing.
        state = replace(state, forgiven_ms=now_ms)
    state = replace(state, looked_ms=now_ms)
    watched = [machine for machine in state.machines.values() if not machine.fenced]
    silent = [machine for machine in watched if _silence_ms(state, machine, now_ms) >= 0]
    state, effects = _suspect(state, silent, event)
    too_many = len(silent) * 100 > terms.brake_percent * len(watched)
    lifted = min(state.lifted_silent, len(silent))
    braked = too_many and len(silent) >= terms.brake_machines and len(silent) > lifted
    if state.braked and not braked:
        state = replace(state, forgiven_ms=now_ms)
    state = replace(state, braked=braked, lifted_silent=lifted)
    for machine in () if braked else silent:
        since_ms = max(machine.heard_ms, state.forgiven_ms)
        if now_ms - since_ms >= terms.fence_ms:
            state, more = _fence(state, state.machines[machine.report.name], event)
            effects += more
    if len(state.unaccounted) and now_ms - state.born_ms >= terms.fence_ms:
        state, more = _resolved(state, None, event)
        effects += more
    return state, effects


def lift(state: State, event: Event) -> Step:
    """An operator's word: the brake holds again only when more machines than now are silent.

    Each silent machine's wait starts anew.
    """
    if not state.braked:
        return state, ()
    now_ms = event.now_ms
    watched = [machine for machine in state.machines.values() if not machine.fenced]
    silent = sum(_silence_ms(state, machine, now_ms) >= 0 for machine in watched)
    return replace(state, braked=False, lifted_silent=silent, forgiven_ms=now_ms), ()


def _silence_ms(state: State, machine: Machine, now_ms: int) -> int:
    """How long beyond the limit at which it is suspected; negative before."""
    return now_ms - machine.heard_ms - state.terms.suspect_ms


def _suspect(state: State, silent: list[Machine], event: Event) -> Step:
    """Nothing new goes there; only what may run twice is replaced at once, brake or not."""
    effects: Effects = ()
    for machine in silent:
        if machine.suspect:
            continue
        state = with_machine(state, replace(machine, suspect=True), news=True)
        for attempt in attempts_on(state, machine):
            if attempt.on_loss is OnLoss.REPLACE_AT_ONCE and attempt.stage is not Stage.REMNANT:
                state, more = give_up(state, attempt, _concluded(attempt), event)
                effects += more
    return state, effects


def _fence(state: State, machine: Machine, event: Event) -> Step:
    """Its deadline has passed, so nothing there runs, but for what ignores the deadline."""
    state = with_machine(state, replace(machine, fenced=True, suspect=True, epoch=0), news=True)
    effects: Effects = ()
    for attempt in attempts_on(state, machine):
        if attempt.stage is Stage.REMNANT or attempt.on_loss is OnLoss.WAIT:
            continue
        state, more = give_up(state, attempt, _concluded(attempt), event)
        effects += more
    return state, effects


def _concluded(attempt: Attempt) -> Ending:
    if attempt.cause is not None:
        return stopped(attempt.cause, "its machine is lost")
    return lost(Reason.MACHINE_LOST)


def _resolved(state: State, machine: str | None, event: Event) -> Step:
    """Doubts that this machine's hello settled; None: all, because no unknown keeper may run on."""
    effects: Effects = ()
    for attempt, doubt in list(state.unaccounted.items()):
        if machine is not None and doubt.machine != machine:
            continue
        state = replace(state, unaccounted=state.unaccounted.without(attempt))
        if attempt in state.live or remembered(state, attempt) is not None:
            continue
        state, more = keep(state, _absent(attempt, doubt, event))
        effects += more
    return state, effects


def _absent(attempt: str, doubt: Unaccounted, event: Event) -> Remembered:
    key, number = split_attempt_id(attempt)
    cause: StopCause | None = doubt.cause
    ending = lost(Reason.ATTEMPT_UNKNOWN) if cause is None else stopped(cause)
    return Remembered(attempt, key, number, doubt.machine, ending, event.at)


# --- time -----------------------------------------------------------------------------------------


def announce(state: State, event: Event) -> Step:
    """Say `started` of what has lived long enough to be worth it."""
    effects: Effects = ()
    due = [name for name, due_ms in state.unannounced.items() if due_ms <= event.now_ms]
    for attempt in due[:ANNOUNCED_MAX]:
        known = state.live[attempt]
        state = replace(state, unannounced=state.unannounced.without(attempt))
        assert known.started_at is not None, known
        started = Started(
            number=known.number,
            cluster=state.cluster,
            machine=known.machine,
            at=known.started_at,
        )
        effects += (Report(attempt, started),)
    return state, effects
