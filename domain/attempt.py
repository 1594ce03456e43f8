"""How an attempt ends (news of one attempt) and how a task ends (its outcome, for ever)."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel

from domain.reasons import Reason
from domain.retry import Cause, FailureClass


class Phase(StrEnum):
    """Where a task stands, as people see it."""

    PENDING = "PENDING"
    OFFERED = "OFFERED"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"

    @property
    def final(self) -> bool:
        """True for the four end states."""
        return self in _FINAL


_FINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.EXPIRED})


class StopCause(StrEnum):
    """Why an attempt is told to stop. The first cause stays, except that CANCEL overrides."""

    CANCEL = "cancel"
    PREEMPT = "preempt"
    DRAIN = "drain"
    RUN_TIMEOUT = "run_timeout"
    OFFER_UNANSWERED = "offer_unanswered"
    SUPERSEDED = "superseded"
    SHUT_DOWN = "shut_down"
    WORKFLOW_GONE = "workflow_gone"


class EndKind(StrEnum):
    """The ways an attempt number can be closed."""

    EXITED = "exited"
    REFUSED = "refused"
    STOPPED = "stopped"
    LOST = "lost"
    FENCED = "fenced"
    ABANDONED = "abandoned"


class Usage(BaseModel, frozen=True):
    """What an attempt used, measured by its keeper."""

    cpu_ms: int = 0
    memory_peak_mib: int = 0
    wall_ms: int = 0


class Ending(BaseModel, frozen=True):
    """How one attempt ended. `exit_code` is 128 + signal for a process killed by a signal."""

    kind: EndKind
    exit_code: int | None = None
    reason: Reason | None = None
    stop_cause: StopCause | None = None
    detail: str = ""
    usage: Usage = Usage()

    @property
    def success(self) -> bool:
        """The attempt did its work: it exited 0 by itself."""
        return self.kind is EndKind.EXITED and self.exit_code == 0 and self.reason is None

    @property
    def cause(self) -> Cause:
        """Whose budget pays for this ending (meaningless for a success)."""
        match self.kind:
            case EndKind.REFUSED:
                return Cause.REFUSAL
            case EndKind.LOST | EndKind.FENCED | EndKind.ABANDONED:
                return Cause.LOSS
            case EndKind.STOPPED if self.stop_cause is not StopCause.RUN_TIMEOUT:
                return Cause.PREEMPTION
            case _:
                return Cause.FAILURE

    @property
    def failure(self) -> FailureClass | None:
        """In which way it failed, where the user's budget pays for that."""
        if self.success or self.cause is not Cause.FAILURE:
            return None
        if self.kind is EndKind.STOPPED:
            return FailureClass.TIMEOUT
        if self.reason is Reason.KILLED_BY_SIGNAL:
            return FailureClass.SIGNAL
        return FailureClass.START if self.exit_code is None else FailureClass.EXIT


class AttemptRecord(BaseModel, frozen=True):
    """One line of a task's story."""

    number: int
    cluster: str = ""
    machine: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ending: Ending | None = None


class Outcome(BaseModel, frozen=True):
    """How a task ended, for ever."""

    phase: Phase
    reason: Reason | None = None
    exit_code: int | None = None
    number: int = 0
    """The last attempt's number; 0 when none was made."""
    detail: str = ""
