"""The state of one task: a union of stages, each with only the fields valid in it."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from domain.attempt import AttemptRecord, Outcome, Phase, StopCause
from domain.claims import Settle, Withdraw
from domain.retry import Spent
from domain.task import TaskSpec

ATTEMPTS_SHOWN_MAX = 20
"""Older attempts are in the ledger; the workflow's state stays small for ever."""


class Pending(BaseModel, frozen=True):
    """Waiting for a machine, as far as the workflow knows."""

    kind: Literal["pending"] = "pending"


class Offered(BaseModel, frozen=True):
    """The ledger has claimed a machine; the agent has not been heard of."""

    kind: Literal["offered"] = "offered"
    number: int
    cluster: str
    machine: str


class Running(BaseModel, frozen=True):
    """The agent has admitted or started the attempt."""

    kind: Literal["running"] = "running"
    number: int
    cluster: str
    machine: str
    note: str = ""


class Stopping(BaseModel, frozen=True):
    """A stop order stands for the attempt. `then`: recorded in place of its ending."""

    kind: Literal["stopping"] = "stopping"
    number: int
    cluster: str
    machine: str
    cause: StopCause
    then: Outcome | None = None


Resting = Annotated[Pending | Offered | Running | Stopping, Field(discriminator="kind")]


class Enqueuing(BaseModel, frozen=True):
    """The ledger was asked to enqueue; the next event is its answer."""

    kind: Literal["enqueuing"] = "enqueuing"
    then: Outcome | None = None
    """Carried over from Stopping, so that asking again forgets no late success."""


class Settling(BaseModel, frozen=True):
    """The ledger was asked to close a number; the next event is its answer."""

    kind: Literal["settling"] = "settling"
    back: Resting
    settle: Settle
    spent: Spent
    """What the budgets become when the number was ours."""
    machine: str = ""


class Withdrawing(BaseModel, frozen=True):
    """The ledger was asked to take the task out of the queue; the next event is its answer."""

    kind: Literal["withdrawing"] = "withdrawing"
    back: Resting
    withdraw: Withdraw


class Done(BaseModel, frozen=True):
    """The end; nothing changes any more."""

    kind: Literal["done"] = "done"
    outcome: Outcome


Stage = Annotated[
    Pending | Offered | Running | Stopping | Enqueuing | Settling | Withdrawing | Done,
    Field(discriminator="kind"),
]


class TaskState(BaseModel, frozen=True):
    """Everything a TaskWorkflow carries through continue-as-new."""

    spec: TaskSpec
    digest: str
    stage: Stage = Enqueuing()
    closed: int = 0
    """The last closed attempt number: reports up to it are about the past."""
    spent: Spent = Spent()
    cancelled: bool = False
    attempts: tuple[AttemptRecord, ...] = ()
    late: int = 0
    """Reports that came for a closed number."""
    misfits: int = 0
    """Messages that could not be read."""
    pending_since: datetime | None = None


_PHASE: Mapping[type[BaseModel], Phase] = MappingProxyType(
    {
        Pending: Phase.PENDING,
        Offered: Phase.OFFERED,
        Running: Phase.RUNNING,
        Stopping: Phase.STOPPING,
        Enqueuing: Phase.PENDING,
    }
)


def phase_of(stage: Stage) -> Phase:
    """The phase people see."""
    if isinstance(stage, Done):
        return stage.outcome.phase
    if isinstance(stage, Settling | Withdrawing):
        return _PHASE[type(stage.back)]
    return _PHASE[type(stage)]


def live_number(stage: Stage) -> int | None:
    """The number of the attempt that the stage is about, where there is one."""
    resting = stage.back if isinstance(stage, Settling | Withdrawing) else stage
    return resting.number if isinstance(resting, Offered | Running | Stopping) else None
