"""What the agent's journal holds, one entry a line: enough to know after a restart what may run."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from domain.attempt import Ending, StopCause
from domain.machine import MachineReport
from domain.task import TaskSpec


class MachineSeen(BaseModel, frozen=True):
    """A keeper has said hello under this report."""

    kind: Literal["machine"] = "machine"
    report: MachineReport


class EpochGranted(BaseModel, frozen=True):
    """A lease of this epoch has begun: tombstones of older epochs are needed no more."""

    kind: Literal["epoch"] = "epoch"
    epoch: int


class Admitted(BaseModel, frozen=True):
    """It may run from here on. Without `spec` its keeper knew it and the journal did not."""

    kind: Literal["admitted"] = "admitted"
    key: str
    number: int
    machine: str
    instance: str
    spec: TaskSpec | None


class StartSeen(BaseModel, frozen=True):
    """The keeper has executed the child; `announced`: the workflow knows."""

    kind: Literal["started"] = "started"
    attempt: str
    at: datetime
    announced: bool = False


class StopTaken(BaseModel, frozen=True):
    """A stop stands, for this cause."""

    kind: Literal["stop"] = "stop"
    attempt: str
    cause: StopCause
    grace_s: int


class Closed(BaseModel, frozen=True):
    """Its number counts no more; it holds room until its keeper says that it is gone."""

    kind: Literal["closed"] = "closed"
    attempt: str


class EndSeen(BaseModel, frozen=True):
    """An ending, reported until acknowledged. `remains`: lost, but its room may still be held."""

    kind: Literal["ended"] = "ended"
    key: str
    number: int
    machine: str
    ending: Ending
    at: datetime
    started_at: datetime | None = None
    gone: bool = False
    remains: bool = False


class Acknowledged(BaseModel, frozen=True):
    """Temporal has the ending."""

    kind: Literal["acknowledged"] = "acknowledged"
    attempt: str


class Released(BaseModel, frozen=True):
    """A closed number holds room no more."""

    kind: Literal["released"] = "released"
    attempt: str


class Buried(BaseModel, frozen=True):
    """A stop came before its offer: the number may never start here."""

    kind: Literal["buried"] = "buried"
    attempt: str


Entry = Annotated[
    MachineSeen
    | EpochGranted
    | Admitted
    | StartSeen
    | StopTaken
    | Closed
    | EndSeen
    | Acknowledged
    | Released
    | Buried,
    Field(discriminator="kind"),
]

URGENT = (EpochGranted, Admitted, StopTaken, Closed, Buried)
"""What the disk must have before anybody is told. Endings are safe at their keepers."""
