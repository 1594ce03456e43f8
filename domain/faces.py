"""Documents of the REST API that its clients read too: pages, explanations, output, problems."""

import base64
from typing import Literal

from pydantic import BaseModel, Field

from domain.attempt import Phase
from domain.reasons import Reason
from domain.views import (
    AttemptView,
    BrakeView,
    ClusterView,
    EventView,
    MachineView,
    VerdictView,
)


class AttemptPage(BaseModel, frozen=True):
    """The attempts of a task, oldest first."""

    items: tuple[AttemptView, ...]


class EventPage(BaseModel, frozen=True):
    """The newest events of a task, oldest first."""

    items: tuple[EventView, ...]


class MachinePage(BaseModel, frozen=True):
    """A page of machines, and the cursor of the next; None at its end."""

    items: tuple[MachineView, ...]
    cursor: str | None = None


class ClusterPage(BaseModel, frozen=True):
    """All clusters."""

    items: tuple[ClusterView, ...]
    cursor: str | None = None


class Explanation(BaseModel, frozen=True):
    """Why a task stands where it stands."""

    team: str
    id: str
    phase: Phase
    summary: str
    """One sentence for people."""
    verdict: VerdictView | None = None
    """Of the last round that looked at it; only while it waits."""
    history: tuple[VerdictView, ...] = ()
    """Verdicts as they changed, oldest first."""
    nearest_miss: str = ""
    events: tuple[EventView, ...] = ()


class OutputPiece(BaseModel, frozen=True):
    """A line of framed output: bytes of one stream, or (no stream) that an attempt is read now.

    The last line has `end` or `cut`; an answer that stops without either was cut off too.
    """

    attempt: int
    place: str = ""
    """`<cluster>/<machine>` of the attempt."""
    stream: Literal["stdout", "stderr"] | None = None
    first: int = 0
    """Offset of the data among everything that the attempt ever wrote to this stream."""
    missing: int = 0
    """So many bytes just before `first` are no longer kept."""
    data: str = ""
    """Base64."""
    end: bool = False
    """There is no more."""
    cut: str = ""
    """Why there is no more now, though there may be later."""

    @property
    def content(self) -> bytes:
        """The bytes themselves; ValueError when they are no base64."""
        return base64.b64decode(self.data, validate=True)

    @property
    def gap(self) -> str:
        """Which bytes are missing before these; empty where none are."""
        return missing_bytes(self.attempt, self.stream, self.first, self.missing)


def missing_bytes(attempt: int, stream: str | None, first: int, missing: int) -> str:
    """Which bytes of an attempt's stream are missing before `first`; empty where none are."""
    if not missing:
        return ""
    return (
        f"{missing} bytes of {stream} of attempt {attempt} are missing here, "
        f"bytes {first - missing} to {first - 1}: no longer kept"
    )


def gap_line(gap: str) -> bytes:
    """How plain text says it, in a line of its own."""
    return f"\n[drystone: {gap}]\n".encode() if gap else b""


class ReadyReport(BaseModel, frozen=True):
    """Whether this API can work now; each part says `ok` or why not."""

    ready: bool
    parts: dict[str, str]
    brake: BrakeView | None = None
    alarms: tuple[str, ...] = ()
    """What a person should look at; none of it keeps this API from working."""


class FieldError(BaseModel, frozen=True):
    """What is wrong with one part of a request."""

    field: str
    """Where: `resources.cpu`, `query.limit`; empty for the body as a whole."""
    message: str


class Problem(BaseModel, frozen=True):
    """RFC 9457, with our additions."""

    type: str = "about:blank"
    title: str = ""
    status: int
    detail: str = ""
    code: str = ""
    """One word for programs: invalid, not_found, conflict, never_fits, too_large, unavailable."""
    errors: tuple[FieldError, ...] = ()
    lost: dict[Reason, int] = Field(default_factory=dict)
    """With never_fits: machines of the fleet lost per reason."""
    task: str = ""
    """With unavailable, after a submission: the id under which asking again is safe."""
