"""What a keeper's decisions are about: the state of its attempts, what happens, what to do.

The stages stand for what is known of an attempt's process tree; `keeper.attempts` moves between
them. Knows nothing of processes, sockets or files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from domain.attempt import StopCause, Usage
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

NOTHING_USED = Usage()


@dataclass(frozen=True, slots=True)
class Instant:
    """Now, on the machine's boot clock (which decides) and on its wall clock (which is shown)."""

    boot_ms: int
    at: datetime


# --- state ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exit:
    """What the main child left: its status and what its tree used."""

    exit_code: int
    by_signal: bool = False
    usage: Usage = NOTHING_USED


@dataclass(frozen=True, slots=True)
class Starting:
    """The driver was told to start it and has not answered."""


@dataclass(frozen=True, slots=True)
class Running:
    """Runs since `since_ms`, after having run for `ran_ms` before it was frozen."""

    since_ms: int
    ran_ms: int = 0


@dataclass(frozen=True, slots=True)
class Frozen:
    """Stands still since the deadline passed; only a grant thaws it."""

    ran_ms: int = 0


@dataclass(frozen=True, slots=True)
class Stopping:
    """Was told to stop. Its main child may be gone (`exit`) while the rest of the tree is not."""

    cause: StopCause
    kill_at_ms: int
    killed: bool = False
    exit: Exit | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """Its main child exited by itself; what is left of its tree is being killed."""

    exit: Exit


Stage = Starting | Running | Frozen | Stopping | Leaving


@dataclass(frozen=True, slots=True)
class Begun:
    """The instant just after the exec."""

    boot_ms: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Live:
    """An attempt whose tree may have processes. `begun` is None until the driver has started it."""

    attempt: str
    grace_ms: int
    run_timeout_ms: int | None
    waits: bool
    """on_loss=wait: it ignores the deadline."""
    stage: Stage = Starting()
    begun: Begun | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to let attempts run, until the deadline."""

    epoch: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Keeper:
    """Everything the keeper of one machine knows. No lease: nothing starts, nothing is thawed."""

    live: Mapping[str, Live] = field(default_factory=dict)
    ended: Mapping[str, AttemptEnded] = field(default_factory=dict)
    """Endings the agent has not yet told us to forget."""
    tombstones: Mapping[str, AttemptEnded] = field(default_factory=dict)
    """Numbers that may never start here, with the answer to a late start; oldest first."""
    lease: Lease | None = None
    epoch: int = 0
    """Of the last grant; an older grant changes nothing."""
    questions: Mapping[int, int] = field(default_factory=dict)
    """When each open lease question was sent; oldest first."""
    questions_asked: int = 0
    shutting_down: bool = False


# --- events (and the messages of domain.protocol from the agent) --------------------------------


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The agent can be reached (again); the hello is sent already."""


@dataclass(frozen=True, slots=True)
class QuestionDue:
    """It is time to ask for more of the lease."""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The keeper was told to end: every attempt is stopped, with at most this grace."""

    grace_ms_max: int


@dataclass(frozen=True, slots=True)
class Launched:
    """The driver has executed the main child."""

    attempt: str


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The driver could not start it; nothing of it runs."""

    attempt: str
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Exited:
    """The main child's exit was seen."""

    attempt: str
    exit: Exit


@dataclass(frozen=True, slots=True)
class Cleared:
    """After the exit: nothing of the attempt's tree is left."""

    attempt: str


OwnEvent = Ticked | Connected | QuestionDue | ShutDown | Launched | LaunchFailed | Exited | Cleared
AgentEvent = LeaseAnswer | KeeperGrant | StartAttempt | StopAttempt | Forget
Event = OwnEvent | AgentEvent


# --- effects, to be carried out in this order -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Journal the number as started, then start it; answered by Launched or LaunchFailed."""

    start: StartAttempt


@dataclass(frozen=True, slots=True)
class Terminate:
    """The stop signal to the whole tree."""

    attempt: str


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to the whole tree, without a thaw, until nothing is left."""

    attempt: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """The whole tree stands still."""

    attempt: str


@dataclass(frozen=True, slots=True)
class Thaw:
    """The whole tree goes on."""

    attempt: str


@dataclass(frozen=True, slots=True)
class MoveDeadline:
    """Tell the warden until when the trees may run."""

    deadline_ms: int


@dataclass(frozen=True, slots=True)
class RecordEnded:
    """Journal an ending, before it is sent."""

    ended: AttemptEnded


@dataclass(frozen=True, slots=True)
class RecordForgotten:
    """Journal that the agent has these endings safely."""

    attempts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """To the agent, if it is connected; what matters is sent again at the next Connected."""

    message: LeaseQuestion | AttemptStarted | AttemptEnded


Effect = (
    Launch | Terminate | Kill | Freeze | Thaw | MoveDeadline | RecordEnded | RecordForgotten | Send
)
Effects = tuple[Effect, ...]
