"""What readers are shown of the ledger: tasks, attempts, events, machines, clusters, totals."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel

from domain.attempt import AttemptRecord, Ending, Outcome, Phase, StopCause
from domain.constraint import Taint
from domain.resources import Resources
from domain.supervision import Reach
from domain.task import TaskSpec
from domain.verdict import Verdict


class EventKind(StrEnum):
    """The transitions of a task that are written down."""

    ENQUEUED = "enqueued"
    ADOPTED = "adopted"
    PLACED = "placed"
    ADMITTED = "admitted"
    REFUSED = "refused"
    STOP_ORDERED = "stop_ordered"
    STOP_WITHDRAWN = "stop_withdrawn"
    FENCED = "fenced"
    ENDED = "ended"
    LATE = "late"
    WAITS_AGAIN = "waits_again"
    FINISHED = "finished"
    MENDED = "mended"
    """The auditor found it at odds with its claim, or with what its agent says."""


class EventView(BaseModel, frozen=True):
    """One transition of a task."""

    seq: int
    at: datetime
    kind: EventKind
    number: int = 0
    detail: str = ""


class AttemptView(AttemptRecord, frozen=True):
    """One attempt with its whole story, late news included."""

    placed_at: datetime
    admitted_at: datetime | None = None
    stop_cause: StopCause | None = None
    closed: bool = False
    """Its number is closed: whatever still comes is late."""
    holds_room: bool = False
    late_ending: Ending | None = None


class VerdictView(BaseModel, frozen=True):
    """Why the task waited, and since when that was so."""

    at: datetime
    verdict: Verdict


class TaskView(BaseModel, frozen=True):
    """Where a task stands."""

    key: str
    team: str
    id: str
    phase: Phase
    spec: TaskSpec
    digest: str
    number: int
    """The last attempt number."""
    cluster: str | None = None
    """Where its attempt is, or where the last one was of a task that has ended."""
    machine: str | None = None
    outcome: Outcome | None = None
    verdict: VerdictView | None = None
    """Why it waits; only while it does."""
    enqueued_at: datetime
    pending_since: datetime
    not_before: datetime
    not_after: datetime | None = None
    updated_at: datetime
    ended_at: datetime | None = None


class TaskPage(BaseModel, frozen=True):
    """A page of a list, and the cursor of the next; None at its end."""

    items: tuple[TaskView, ...]
    cursor: str | None = None


class DrainView(BaseModel, frozen=True):
    """A machine that is being emptied."""

    by: str
    since: datetime
    deadline: datetime | None = None
    """From then on its attempts are stopped, whether or not there is room elsewhere."""
    attempts: int
    """That still hold room there."""
    blocked_by: tuple[str, ...] = ()
    """Tasks that found no room elsewhere when that was looked for last."""


class ClusterDrainView(BaseModel, frozen=True):
    """A cluster that is being emptied as a whole; machines that join it are, too."""

    by: str
    since: datetime
    deadline: datetime | None = None


class MachineView(BaseModel, frozen=True):
    """One machine, what it has, and what claims hold of it."""

    cluster: str
    name: str
    zone: str
    rack: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    capacity: Resources
    used: Resources
    cordoned: bool
    cordoned_by: str = ""
    reachable: bool
    """Its keeper answers its agent, and that agent answers."""
    drain: DrainView | None = None
    """While it is being emptied, and until that is ended."""
    updated_at: datetime


class ClusterView(BaseModel, frozen=True):
    """One cluster as its ClusterWorkflow last committed it."""

    name: str
    state: Reach
    epoch: int
    instance: str
    http_address: str = ""
    site: str = ""
    registered_at: datetime
    heard_at: datetime
    silent_since: datetime | None = None
    """Begins anew when the brake is lifted."""
    confirmed_by: str = ""
    machines_braked_since: datetime | None = None
    """Its agent gives no silent machine up: too many are silent."""
    machines: int = 0
    attempts: int = 0
    """Attempts that hold room there."""
    drained_machines: int = 0
    """Machines that are being emptied, or were and are kept so."""
    drained_attempts: int = 0
    """Attempts that still hold room on those."""
    drain: ClusterDrainView | None = None
    """While it is being emptied as a whole, and until that is ended."""


class BrakeView(BaseModel, frozen=True):
    """The stop on mass replacement."""

    held: bool
    since: datetime | None = None
    by: str = ""
    """Who lifted it last; empty when it lifted by itself."""
    silent: int = 0
    """Clusters that are silent, of so many `counted`."""
    counted: int = 0
    machines: dict[str, datetime] = {}
    """Clusters whose agents give no silent machine up, and since when."""


class PartitionView(BaseModel, frozen=True):
    """A partition's bell and how many rows wait there."""

    number: int
    bell: str
    waiting: int


class TeamUsage(BaseModel, frozen=True):
    """What a team's open claims hold."""

    team: str
    used: Resources
