"""The agent of a cluster: the last word on what runs there. Read `step` first.

`step(state, event)` answers with the next state and the effects to carry out, in their order; what
is to be recorded comes before everything else of the same step. Pure: instants come with events,
and nothing is known of sockets, files or Temporal. The words are in agent/state.py; the leaves in
orders, machines and endings.
"""

from dataclasses import dataclass, replace

from agent.endings import report_taken, workflow_gone
from agent.machines import announce, connected, disconnected, lift, look, said
from agent.orders import deliver, grant
from agent.recovery import restored, snapshot
from agent.state import (
    Answer,
    Attempt,
    Beaten,
    BrakeLifted,
    Connected,
    Disconnected,
    Effect,
    Effects,
    Event,
    HandOver,
    Machine,
    Record,
    Remembered,
    Report,
    ReportTaken,
    Said,
    Stage,
    State,
    Step,
    Terms,
    Ticked,
    ToKeeper,
    WorkflowGone,
    leased,
    ready,
    remembered,
)
from domain.machine import MachineReport
from domain.protocol import (
    MACHINES_PER_MESSAGE_MAX,
    Delivery,
    Grant,
    MachineState,
    RunningDigest,
)
from domain.resources import Resources

__all__ = [
    "Answer",
    "Attempt",
    "Beaten",
    "BrakeLifted",
    "Bulletin",
    "Connected",
    "Disconnected",
    "Effect",
    "Effects",
    "Event",
    "HandOver",
    "Machine",
    "Record",
    "Remembered",
    "Report",
    "ReportTaken",
    "Said",
    "Stage",
    "State",
    "Terms",
    "Ticked",
    "ToKeeper",
    "WorkflowGone",
    "bulletin",
    "check",
    "counted",
    "leased",
    "ready",
    "remembered",
    "restored",
    "snapshot",
    "step",
    "unacknowledged",
]


def step(state: State, event: Event) -> tuple[State, Effects]:
    """The next state, and what to do."""
    match event.what:
        case Delivery() as delivery:
            return deliver(state, delivery, event)
        case Grant() as granted:
            return grant(state, granted, event)
        case Beaten() as beaten:
            return _beaten(state, beaten, event)
        case Connected() as hello:
            return connected(state, event, hello)
        case Said() as message:
            return said(state, event, message)
        case Disconnected() as gone:
            return disconnected(state, gone)
        case Ticked():
            return _ticked(state, event)
        case BrakeLifted():
            return lift(state, event)
        case ReportTaken() as taken:
            return report_taken(state, taken)
        case WorkflowGone() as gone:
            return workflow_gone(state, gone)
    raise AssertionError(event.what)


def _beaten(state: State, beaten: Beaten, event: Event) -> Step:
    """An acknowledgement extends a lease that has not passed; it never begins one."""
    for name, change in beaten.told:
        if state.news.get(name) == change:
            state = replace(state, news=state.news.without(name))
    sent_ms = max(beaten.sent_ms, state.beaten_ms or beaten.sent_ms)
    until_ms = state.lease_until_ms
    if leased(state, event.now_ms):
        until_ms = max(until_ms, sent_ms + state.terms.lease_ms)
    return replace(state, beaten_ms=sent_ms, lease_until_ms=until_ms), ()


def _ticked(state: State, event: Event) -> Step:
    state, announced = announce(state, event)
    state, looked = look(state, event)
    return state, (*announced, *looked)


# --- what the heartbeat says ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bulletin:
    """What the next heartbeat carries; `told` goes into `Beaten` when it is acknowledged."""

    machines: tuple[MachineReport, ...]
    states: tuple[MachineState, ...]
    running: tuple[RunningDigest, ...]
    told: tuple[tuple[str, int], ...]


def bulletin(state: State, now_ms: int, after: str = "") -> Bulletin:
    """News first, and the digests of the machines that come after this one by name."""
    told = tuple(sorted(state.news.items()))[:MACHINES_PER_MESSAGE_MAX]
    names = sorted(name for name in state.machines if name > after)[:MACHINES_PER_MESSAGE_MAX]
    news = [state.machines[name] for name, _ in told]
    return Bulletin(
        machines=tuple(machine.report for machine in news),
        states=tuple(
            MachineState(machine=machine.report.name, reachable=ready(state, machine, now_ms))
            for machine in news
        ),
        running=tuple(_digest(state, state.machines[name]) for name in names),
        told=told,
    )


def _digest(state: State, machine: Machine) -> RunningDigest:
    count = xor = 0
    for attempt in counted(state, machine):
        count, xor = count + 1, xor ^ attempt.hash
    return RunningDigest(machine=machine.report.name, count=count, xor=xor)


def counted(state: State, machine: Machine) -> list[Attempt]:
    """What the scheduler should hold claims for: not what was given up already."""
    here = (state.live[name] for name in machine.attempts)
    return [attempt for attempt in here if not attempt.reported]


# --- questions for shells, tests and simulation ---------------------------------------------------


def unacknowledged(state: State) -> list[Remembered]:
    """Endings that Temporal does not have yet."""
    halves = (*state.ended_before.values(), *state.ended.values())
    return [record for record in halves if not record.acknowledged]


def check(state: State) -> None:
    """What must hold after every step; a violation is our bug."""
    for name, machine in state.machines.items():
        assert name == machine.report.name
        here = [state.live[attempt] for attempt in machine.attempts]
        assert all(attempt.machine == name for attempt in here)
        used = Resources()
        for attempt in here:
            used = used if attempt.spec is None else used.plus(attempt.spec.resources)
        assert used == machine.used, (used, machine.used)
        assert machine.unsized == sum(attempt.spec is None for attempt in here)
    assert sum(len(machine.attempts) for machine in state.machines.values()) == len(state.live)
    running = [a for a in state.live.values() if a.stage is not Stage.REMNANT]
    assert {a.key: a.id for a in running} == dict(state.by_task.items()), "two of one task"
    assert len(running) == len(state.by_task), "two of one task"
    for attempt in state.live.values():
        known = remembered(state, attempt.id)
        assert attempt.reported or known is None, (attempt, known)
        assert not attempt.reported or attempt.stage is Stage.REMNANT, attempt
        assert (attempt.stage is Stage.STOPPING) <= (attempt.cause is not None), attempt
    for name in state.unannounced:
        assert state.live[name].stage is Stage.RUNNING, name
    assert not set(state.ended) & set(state.ended_before)
    assert set(state.news) <= set(state.machines)
