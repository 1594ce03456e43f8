"""What admission is about: machines, attempts, endings; what happens to them; what is to be done.

Frozen, and changed only by the steps in admission, orders, machines and endings. Instants in
milliseconds are of the agent's own boot clock; those that people read come with the event.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from agent.entries import Entry
from agent.table import Table
from domain.attempt import Ending, StopCause
from domain.ids import attempt_hash, attempt_id
from domain.machine import MachineReport
from domain.protocol import (
    AgentMessage,
    Delivery,
    DeliveryAnswer,
    Ended,
    Grant,
    GrantAnswer,
    KeeperHello,
    KeeperMessage,
    Orphan,
    Started,
)
from domain.resources import Resources
from domain.task import OnLoss, TaskSpec

REMEMBERED_MAX = 100_000
"""Endings kept to answer doubles and inquiries; unacknowledged ones are never dropped."""
TOMBSTONES_MAX = 100_000
"""Between two grants; beyond them the oldest epoch's order is trusted not to come."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The numbers that agent, scheduler and keepers agree on."""

    lease_ms: int = 60_000
    keeper_lease_ms: int = 60_000
    suspect_ms: int = 30_000
    drift_percent: float = 1
    margin_ms: int = 5_000
    late_ms: int = 2_000
    brake_machines: int = 2
    brake_percent: float = 20
    started_after_ms: int = 2_000
    look_ms: int = 1_000
    """How often silence is looked for."""
    remembered_max: int = REMEMBERED_MAX

    @property
    def fence_ms(self) -> int:
        """After so much silence a keeper's deadline has certainly passed."""
        return int(self.keeper_lease_ms * (1 + self.drift_percent / 100)) + self.margin_ms


class Stage(StrEnum):
    """Where an attempt stands."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    REMNANT = "remnant"
    """Its number is closed: it only holds room, and is to be killed."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One that holds room on a machine. Without `spec` its size is unknown: it holds all of it."""

    id: str
    key: str
    number: int
    machine: str
    instance: str
    """Of the keeper it was given to: dead as soon as another one registers."""
    spec: TaskSpec | None
    hash: int
    stage: Stage = Stage.STARTING
    cause: StopCause | None = None
    grace_s: int = 0
    started_at: datetime | None = None
    announced: bool = False
    reported: bool = False
    """A remnant whose end was reported before it was certain that its room is free."""

    @property
    def on_loss(self) -> OnLoss:
        """What was not described here is never given up without a confirmation."""
        return OnLoss.WAIT if self.spec is None else self.spec.on_loss


def new_attempt(key: str, number: int, machine: MachineReport, spec: TaskSpec | None) -> Attempt:
    """An attempt just given to a keeper."""
    attempt = attempt_id(key, number)
    return Attempt(
        attempt, key, number, machine.name, machine.instance, spec, attempt_hash(attempt)
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """One keeper, as its agent knows it."""

    report: MachineReport
    heard_ms: int
    connection: int | None = None
    question: int | None = None
    """The last lease question of this connection, and when it came."""
    asked_ms: int = 0
    lease_until_ms: int = 0
    """The keeper's own deadline is not later than this."""
    epoch: int = 0
    """Of the grant given over this connection; 0 = none yet."""
    leaving: bool = False
    """This keeper is being stopped: what it stops must come back to its successor only."""
    suspect: bool = False
    fenced: bool = False
    attempts: frozenset[str] = frozenset()
    used: Resources = field(default_factory=Resources)
    unsized: int = 0


@dataclass(frozen=True, slots=True)
class Remembered:
    """An ended attempt, until Temporal has its ending and for some time after."""

    id: str
    key: str
    number: int
    machine: str
    ending: Ending
    at: datetime
    started_at: datetime | None = None
    acknowledged: bool = False
    gone: bool = False
    """Its workflow is: the cluster's takes it."""


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Asked about while the journal is too young to say that it never was here."""

    machine: str
    cause: StopCause | None = None


@dataclass(frozen=True, slots=True)
class State:
    """Everything the agent of one cluster knows."""

    terms: Terms
    cluster: str
    instance: str
    born_ms: int
    amnesiac: bool = False
    """The journal was begun by this process: what it does not hold may run all the same."""
    epoch: int = 0
    epoch_seen: int = 0
    """Survives a restart, which `epoch` does not."""
    lease_until_ms: int = 0
    beaten_ms: int | None = None
    """When the last acknowledged heartbeat was sent."""
    machines: Table[Machine] = field(default_factory=Table)
    live: Table[Attempt] = field(default_factory=Table)
    by_task: Table[str] = field(default_factory=Table)
    """The one attempt of a task that may run; remnants are not in it."""
    ended: Table[Remembered] = field(default_factory=Table)
    ended_before: Table[Remembered] = field(default_factory=Table)
    """The older half of what is remembered."""
    tombstones: Table[None] = field(default_factory=Table)
    closed: frozenset[str] = frozenset()
    """The closed numbers of the last grant."""
    unaccounted: Table[Unaccounted] = field(default_factory=Table)
    unannounced: Table[int] = field(default_factory=Table)
    """Attempts that are announced at this instant if they still live."""
    news: Table[int] = field(default_factory=Table)
    """Machines whose change the scheduler has not acknowledged, and which change it was."""
    changes: int = 0
    braked: bool = False
    lifted_silent: int = 0
    """An operator has lifted the brake while so many machines were silent: it takes more."""
    looked_ms: int | None = None
    forgiven_ms: int = 0
    """Silence before this instant is not counted."""


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beaten:
    """Temporal has acknowledged a heartbeat or registration that was sent at `sent_ms`."""

    sent_ms: int
    told: tuple[tuple[str, int], ...] = ()
    """The news it carried (see `Bulletin`)."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A keeper has said hello on a connection, numbered by us."""

    hello: KeeperHello
    connection: int


@dataclass(frozen=True, slots=True)
class Said:
    """A keeper's message after its hello."""

    machine: str
    connection: int
    message: KeeperMessage


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection has ended."""

    machine: str
    connection: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class BrakeLifted:
    """An operator's word: losses of machines that are silent now are taken for what they are."""


@dataclass(frozen=True, slots=True)
class ReportTaken:
    """Temporal has a report, or the cluster's workflow an orphan."""

    report: "Report | HandOver"


@dataclass(frozen=True, slots=True)
class WorkflowGone:
    """The answer to a report: its workflow does not exist, or has closed."""

    report: "Report"


What = (
    Delivery
    | Grant
    | Beaten
    | Connected
    | Said
    | Disconnected
    | Ticked
    | BrakeLifted
    | ReportTaken
    | WorkflowGone
)


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, when by the boot clock, and when by the wall clock (for people only)."""

    what: What
    now_ms: int
    at: datetime


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """Append to the journal, before any other effect of the same step is carried out."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class ToKeeper:
    """Send, if it is connected; what matters is sent again after its next hello."""

    machine: str
    message: AgentMessage


@dataclass(frozen=True, slots=True)
class Report:
    """Signal the attempt's TaskWorkflow until it has it or is gone."""

    attempt: str
    message: Ended | Started


@dataclass(frozen=True, slots=True)
class HandOver:
    """Tell the cluster's workflow of an ended attempt whose own workflow is gone."""

    attempt: str
    orphan: Orphan


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a delivery or grant."""

    answer: DeliveryAnswer | GrantAnswer


Effect = Record | ToKeeper | Report | HandOver | Answer
Effects = tuple[Effect, ...]
Step = tuple[State, Effects]


# --- small questions and changes ------------------------------------------------------------------


def leased(state: State, now_ms: int) -> bool:
    """May this agent admit?"""
    return state.epoch > 0 and now_ms < state.lease_until_ms


def ready(state: State, machine: Machine, now_ms: int) -> bool:
    """Connected to stay, and with a lease of its own that has not passed."""
    granted = machine.epoch == state.epoch and state.epoch > 0
    there = machine.connection is not None and not machine.leaving
    return there and granted and now_ms < machine.lease_until_ms


def remembered(state: State, attempt: str) -> Remembered | None:
    """The ending of an attempt that is not live."""
    return state.ended.get(attempt) or state.ended_before.get(attempt)


def attempts_on(state: State, machine: Machine) -> list[Attempt]:
    """In an order that every run repeats."""
    return [state.live[attempt] for attempt in sorted(machine.attempts)]


def with_machine(state: State, machine: Machine, *, news: bool = False) -> State:
    """`news`: the scheduler is to hear of it."""
    name = machine.report.name
    state = replace(state, machines=state.machines.put(name, machine))
    if not news:
        return state
    changes = state.changes + 1
    return replace(state, changes=changes, news=state.news.put(name, changes))


def with_attempt(state: State, attempt: Attempt) -> State:
    """Change one that is live."""
    assert attempt.id in state.live, attempt
    return replace(state, live=state.live.put(attempt.id, attempt))


def added(state: State, attempt: Attempt) -> State:
    """One more that holds room."""
    assert attempt.id not in state.live, attempt
    machine = state.machines[attempt.machine]
    if attempt.spec is None:
        machine = replace(machine, unsized=machine.unsized + 1)
    else:
        machine = replace(machine, used=machine.used.plus(attempt.spec.resources))
    machine = replace(machine, attempts=machine.attempts | {attempt.id})
    state = replace(with_machine(state, machine), live=state.live.put(attempt.id, attempt))
    if attempt.stage is Stage.REMNANT:
        return state
    return replace(state, by_task=state.by_task.put(attempt.key, attempt.id))


def removed(state: State, attempt: Attempt) -> State:
    """It holds room no more."""
    machine = state.machines[attempt.machine]
    if attempt.spec is None:
        machine = replace(machine, unsized=machine.unsized - 1)
    else:
        machine = replace(machine, used=machine.used.minus(attempt.spec.resources))
    machine = replace(machine, attempts=machine.attempts - {attempt.id})
    state = replace(with_machine(state, machine), live=state.live.without(attempt.id))
    return no_longer_running(state, attempt)


def no_longer_running(state: State, attempt: Attempt) -> State:
    """It is not the attempt of its task any more, whatever room it holds."""
    if state.by_task.get(attempt.key) == attempt.id:
        state = replace(state, by_task=state.by_task.without(attempt.key))
    if attempt.id in state.unannounced:
        state = replace(state, unannounced=state.unannounced.without(attempt.id))
    return state
