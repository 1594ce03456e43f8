"""A journal's entries become a state, and a state becomes the fewest entries that say the same."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from agent.endings import remember, told
from agent.entries import (
    Acknowledged,
    Admitted,
    Buried,
    Closed,
    EndSeen,
    Entry,
    EpochGranted,
    MachineSeen,
    Released,
    StartSeen,
    StopTaken,
)
from agent.state import (
    Attempt,
    Effects,
    Machine,
    Remembered,
    Stage,
    State,
    Terms,
    added,
    new_attempt,
    no_longer_running,
    remembered,
    removed,
    with_attempt,
    with_machine,
)
from agent.table import Table
from domain.ids import attempt_id


def restored(
    entries: Iterable[Entry], *, terms: Terms, cluster: str, instance: str, now_ms: int
) -> tuple[State, Effects]:
    """The state of an agent that has just started: no lease, no keeper; endings go out again."""
    state = State(terms=terms, cluster=cluster, instance=instance, born_ms=now_ms)
    count = 0
    for entry in entries:
        count += 1
        state = _replayed(state, entry)
    state = replace(state, amnesiac=count == 0)
    effects: Effects = tuple(
        told(state, record)
        for half in (state.ended_before, state.ended)
        for record in half.values()
        if not record.acknowledged
    )
    return state, effects


def _replayed(state: State, entry: Entry) -> State:
    match entry:
        case MachineSeen(report=report):
            old = state.machines.get(report.name)
            if old is None:
                return with_machine(state, Machine(report, heard_ms=state.born_ms))
            return with_machine(state, replace(old, report=report))
        case EpochGranted(epoch=epoch):
            return replace(state, epoch_seen=epoch, tombstones=Table())
        case Admitted():
            return _admitted(state, entry)
        case EndSeen():
            return _ended(state, entry)
        case Buried(attempt=attempt):
            return replace(state, tombstones=state.tombstones.put(attempt, None))
        case Acknowledged(attempt=attempt):
            record = remembered(state, attempt)
            return state if record is None else _acknowledged(state, record)
        case StartSeen() | StopTaken() | Closed() | Released():
            live = state.live.get(entry.attempt)
            return state if live is None else _changed(state, live, entry)


def _admitted(state: State, entry: Admitted) -> State:
    machine = state.machines.get(entry.machine)
    assert machine is not None, f"admitted on a machine that never said hello: {entry!r}"
    if attempt_id(entry.key, entry.number) in state.live:
        return state
    attempt = new_attempt(entry.key, entry.number, machine.report, entry.spec)
    stage = Stage.STARTING if entry.spec is not None else Stage.RUNNING
    return added(state, replace(attempt, instance=entry.instance, stage=stage))


def _ended(state: State, entry: EndSeen) -> State:
    attempt = attempt_id(entry.key, entry.number)
    live = state.live.get(attempt)
    if live is not None and entry.remains:
        remnant = replace(live, stage=Stage.REMNANT, reported=True)
        state = no_longer_running(with_attempt(state, remnant), live)
    elif live is not None:
        state = removed(state, live)
    record = Remembered(
        id=attempt,
        key=entry.key,
        number=entry.number,
        machine=entry.machine,
        ending=entry.ending,
        at=entry.at,
        started_at=entry.started_at,
        gone=entry.gone,
    )
    return remember(state, record)


def _acknowledged(state: State, record: Remembered) -> State:
    record = replace(record, acknowledged=True)
    if record.id in state.ended:
        return replace(state, ended=state.ended.put(record.id, record))
    return replace(state, ended_before=state.ended_before.put(record.id, record))


def _changed(
    state: State, live: Attempt, entry: StartSeen | StopTaken | Closed | Released
) -> State:
    remnant = live.stage is Stage.REMNANT
    match entry:
        case StartSeen(at=at, announced=announced):
            stage = Stage.RUNNING if live.stage is Stage.STARTING else live.stage
            live = replace(live, started_at=at, announced=announced, stage=stage)
            state = with_attempt(state, live)
            if announced or stage is not Stage.RUNNING:
                return replace(state, unannounced=state.unannounced.without(live.id))
            return replace(state, unannounced=state.unannounced.put(live.id, state.born_ms))
        case StopTaken(cause=cause, grace_s=grace_s):
            after = live.stage if remnant else Stage.STOPPING
            live = replace(live, stage=after, cause=cause, grace_s=grace_s)
            state = replace(state, unannounced=state.unannounced.without(live.id))
            return with_attempt(state, live)
        case Closed():
            closed = replace(live, stage=Stage.REMNANT)
            return no_longer_running(with_attempt(state, closed), live)
        case Released():
            return removed(state, live)


# --- and back -------------------------------------------------------------------------------------


def snapshot(state: State) -> Iterator[Entry]:
    """Entries from which `restored` makes the same state again, but for lease and connections."""
    for machine in state.machines.values():
        yield MachineSeen(report=machine.report)
    if state.epoch_seen:
        yield EpochGranted(epoch=state.epoch_seen)
    for attempt in state.tombstones:
        yield Buried(attempt=attempt)
    for live in state.live.values():
        yield from _entries_of(live)
    for half in (state.ended_before, state.ended):
        for record in half.values():
            yield _end_of(state, record)
            if record.acknowledged:
                yield Acknowledged(attempt=record.id)


def _entries_of(live: Attempt) -> Iterator[Entry]:
    yield Admitted(
        key=live.key,
        number=live.number,
        machine=live.machine,
        instance=live.instance,
        spec=live.spec,
    )
    if live.started_at is not None:
        yield StartSeen(attempt=live.id, at=_instant(live), announced=live.announced)
    if live.cause is not None:
        yield StopTaken(attempt=live.id, cause=live.cause, grace_s=live.grace_s)
    if live.stage is Stage.REMNANT:
        yield Closed(attempt=live.id)


def _instant(live: Attempt) -> datetime:
    assert live.started_at is not None, live
    return live.started_at


def _end_of(state: State, record: Remembered) -> EndSeen:
    return EndSeen(
        key=record.key,
        number=record.number,
        machine=record.machine,
        ending=record.ending,
        at=record.at,
        started_at=record.started_at,
        gone=record.gone,
        remains=record.id in state.live,
    )
