"""The workflows of the system as `durable` drives them: pure cores, and what they ask."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from domain import cluster as clusters
from domain import lifecycle
from domain.lifecycle import Event, RefusedError
from domain.partition import RoundsDone
from domain.protocol import ReRead, left_out, read_cluster_envelope, read_task_envelope
from domain.stages import Done, TaskState
from domain.supervision import (
    ArmSlice,
    ArmSuspicion,
    Delivered,
    DeliveryFailed,
    Granted,
    GrantFailed,
    PageLoss,
    SendDelivery,
    SendGrant,
    SliceEnded,
    SuspicionDue,
)
from sim.clock import SECOND
from sim.durable import Execution, Perform, Temporal

if TYPE_CHECKING:
    from sim.agents import AgentShell
    from sim.scheduler import Scheduler

Effects = tuple[Any, ...]


class TaskKind:
    """TaskWorkflow: drives domain.lifecycle."""

    name = "task"

    def __init__(self, scheduler: "Scheduler") -> None:
        self._scheduler = scheduler

    def begin(self, state: TaskState, at: datetime) -> tuple[TaskState, Effects]:
        """The first step of a run."""
        return lifecycle.begin(state, at)

    def step(
        self, state: TaskState, message: Any, at: datetime, chance: float
    ) -> tuple[TaskState, Effects]:
        """One message or answer."""
        try:
            after, effects = lifecycle.step(state, Event(message, at, chance))
        except RefusedError as refused:
            raise AssertionError(f"{state.spec.key} was refused: {refused}") from refused
        lifecycle.check(after)
        return after, effects

    def read(self, raw: Any) -> Any:
        """A report's envelope."""
        letter = read_task_envelope(raw)
        return None if letter is None else letter.message

    def perform(self, effect: Any) -> Perform | None:
        """Every effect of a task is a question to the ledger."""
        return self._scheduler.ledger(effect)

    def command(self, execution: Execution, effect: Any) -> None:
        """There is nothing beside the loop."""
        raise AssertionError((execution.id, effect))

    def ended(self, state: TaskState) -> bool:
        """The outcome is known."""
        return isinstance(state.stage, Done)

    def asked_again(self) -> Any:
        """A reset reads the row again."""
        return ReRead()


class ClusterKind:
    """ClusterWorkflow: drives domain.cluster."""

    name = "cluster"

    def __init__(self, scheduler: "Scheduler", temporal: Temporal) -> None:
        self._scheduler = scheduler
        self._temporal = temporal
        self.agents: dict[str, AgentShell] = {}

    def begin(self, state: Any, at: datetime) -> tuple[Any, Effects]:  # noqa: ARG002
        """The first step of a run."""
        return clusters.begin(state)

    def step(self, state: Any, message: Any, at: datetime, chance: float) -> tuple[Any, Effects]:  # noqa: ARG002
        """One message or answer."""
        after, effects = clusters.step(state, message, at)
        clusters.check(after)
        return after, effects

    def read(self, raw: Any) -> Any:
        """A cluster's envelope."""
        letter = read_cluster_envelope(raw)
        return None if letter is None else letter.message

    def perform(self, effect: Any) -> Perform | None:
        """The ledger answers at once; agents, timers and pages report through the inbox."""
        if isinstance(effect, SendGrant | SendDelivery | ArmSlice | ArmSuspicion | PageLoss):
            return None
        return self._scheduler.cluster_ledger(effect)

    def command(self, execution: Execution, effect: Any) -> None:
        """Begin it."""
        temporal = self._temporal
        match effect:
            case SendGrant(grant=grant):
                agent = self.agents[grant.cluster]
                temporal.ask_agent(
                    execution,
                    lambda done: agent.take(grant, done),
                    lambda answer: Granted(answer=answer),
                    GrantFailed(epoch=grant.epoch),
                )
            case SendDelivery(delivery=delivery):
                agent = self.agents[delivery.cluster]
                temporal.ask_agent(
                    execution,
                    lambda done: agent.take(delivery, done),
                    lambda answer: Delivered(answer=answer, left_out=left_out(delivery, answer)),
                    DeliveryFailed(),
                )
            case ArmSlice(began=began, wait=wait):
                temporal.timer(execution, _us(wait), SliceEnded(began=began))
            case ArmSuspicion(heard_at=heard_at, wait=wait):
                due = temporal.clock.instant + wait
                temporal.timer(execution, _us(wait), SuspicionDue(heard_at=heard_at, due=due))
            case PageLoss():
                temporal.activity(execution, lambda: self._scheduler.page_loss(effect), 10 * SECOND)

    def ended(self, state: Any) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def asked_again(self) -> Any:
        """A reset of a cluster's workflow is a begin like any other."""
        return None


# --- partitions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rung:
    """There may be work."""


@dataclass(frozen=True)
class Due:
    """The instant for which a timer was armed."""

    turn: int


@dataclass(frozen=True)
class Gone:
    """This task has a row but no workflow."""

    key: str


@dataclass(frozen=True)
class CloseGone:
    """Effect: close these rows."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class Closed:
    """They are closed."""


@dataclass(frozen=True)
class PlaceRounds:
    """Effect: rounds while there is work."""


@dataclass(frozen=True)
class ArmDue:
    """Effect: wake when a row is due."""

    at: datetime
    turn: int


@dataclass(frozen=True)
class Bell:
    """The state of a PlacementWorkflow."""

    rung: bool = False
    busy: bool = False
    turn: int = 0


class PlacementKind:
    """PlacementWorkflow: rung, it asks for rounds; idle, it waits until a row is due."""

    name = "placement"

    def __init__(self, scheduler: "Scheduler", temporal: Temporal) -> None:
        self._scheduler = scheduler
        self._temporal = temporal

    def begin(self, state: Bell, at: datetime) -> tuple[Bell, Effects]:  # noqa: ARG002
        """Every run begins rung."""
        return replace(state, rung=False, busy=True), (PlaceRounds(),)

    def step(self, state: Bell, message: Any, at: datetime, chance: float) -> tuple[Bell, Effects]:  # noqa: ARG002
        """One message or answer."""
        match message:
            case Gone(key=key):
                return state, (CloseGone((key,)),)
            case Rung() if state.busy:
                return replace(state, rung=True), ()
            case RoundsDone(more=more, next_due=due):
                if more or state.rung:
                    return replace(state, rung=False, busy=True), (PlaceRounds(),)
                turn = state.turn + 1
                armed = () if due is None else (ArmDue(due, turn),)
                return replace(state, busy=False, turn=turn), armed
            case Rung() | Due():
                if isinstance(message, Due) and (state.busy or message.turn != state.turn):
                    return state, ()
                return replace(state, busy=True), (PlaceRounds(),)
            case Closed():
                return state, ()
        raise AssertionError(message)

    def read(self, raw: Any) -> Any:
        """Ring and gone are what they are."""
        return raw

    def perform(self, effect: Any) -> Perform | None:
        """Closing rows is a local activity."""
        return self._scheduler.close_gone(effect.keys) if isinstance(effect, CloseGone) else None

    def command(self, execution: Execution, effect: Any) -> None:
        """Begin it."""
        if isinstance(effect, ArmDue):
            wait = effect.at - self._temporal.clock.instant
            self._temporal.timer(execution, max(0, _us(wait)), Due(effect.turn))
        else:
            partition = int(execution.id.rpartition("/")[2])
            self._temporal.activity(execution, lambda: self._scheduler.place_round(partition))

    def ended(self, state: Bell) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def asked_again(self) -> Any:
        """A reset begins rung."""
        return Rung()


def _us(wait: timedelta) -> int:
    return wait // timedelta(microseconds=1)
