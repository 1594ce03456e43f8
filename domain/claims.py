"""The ledger's words: what is asked of it and what it answers, here and over Temporal."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from domain.attempt import Ending, Outcome, StopCause
from domain.reasons import Reason
from domain.retry import Spent
from domain.task import TaskSpec


class Requeue(BaseModel, frozen=True):
    """The row becomes pending again."""

    kind: Literal["requeue"] = "requeue"
    not_before: datetime
    not_after: datetime | None = None


class Finish(BaseModel, frozen=True):
    """The row becomes final with this outcome."""

    kind: Literal["finish"] = "finish"
    outcome: Outcome


Then = Annotated[Requeue | Finish, Field(discriminator="kind")]


class Enqueue(BaseModel, frozen=True):
    """Make the row pending unless it is final or its number is live."""

    kind: Literal["enqueue"] = "enqueue"
    spec: TaskSpec
    digest: str
    not_after: datetime | None = None
    at: datetime


class LiveAttempt(BaseModel, frozen=True):
    """An attempt whose number is open: it may run."""

    number: int
    cluster: str
    machine: str
    admitted: bool = False
    stop_cause: StopCause | None = None


class SubmitRefusal(BaseModel, frozen=True):
    """Why a submission is not accepted at all; no row is made."""

    code: Literal["conflict", "never_fits", "invalid"]
    message: str
    lost: dict[Reason, int] = Field(default_factory=dict)


class Enqueued(BaseModel, frozen=True):
    """Where the row stands after `Enqueue`. At most one of the last three is set."""

    kind: Literal["enqueued"] = "enqueued"
    closed: int
    """The last closed number: only reports above it count."""
    live: LiveAttempt | None = None
    final: Outcome | None = None
    refusal: SubmitRefusal | None = None
    spent: Spent = Spent()
    """Attempts that ended so far, by cause, as the ledger knows them: a new run goes on there."""


class Settle(BaseModel, frozen=True):
    """Close a number with its ending. `late`: it is known to be closed; only release room."""

    kind: Literal["settle"] = "settle"
    key: str
    number: int
    cluster: str
    ending: Ending
    then: Then
    at: datetime
    started_at: datetime | None = None
    """The child's exec, as its keeper stamped it."""
    ended_at: datetime | None = None
    """When it ended, as its keeper stamped it (its agent, where no keeper could); for display."""
    late: bool = False


class Settled(BaseModel, frozen=True):
    """`mine`: the number was open (or closed by this very ending) and `then` holds now."""

    kind: Literal["settled"] = "settled"
    mine: bool
    closed: int
    final: Outcome | None = None
    """Set when the row was final already."""


class WithdrawCause(StrEnum):
    """Why a task is taken out of the queue."""

    CANCEL = "cancel"
    EXPIRE = "expire"
    LATE_SUCCESS = "late_success"


class Withdraw(BaseModel, frozen=True):
    """Still pending = final now; already claimed = a stop order (not for EXPIRE)."""

    kind: Literal["withdraw"] = "withdraw"
    key: str
    cause: WithdrawCause
    outcome: Outcome
    """Recorded when the row was still pending."""
    abandon: bool = False
    """With CANCEL: a claimed number is closed at once as "may still run"; its claim a remnant."""
    at: datetime


class WithdrawAnswer(StrEnum):
    """What the ledger did."""

    WITHDRAWN = "withdrawn"
    STOPPING = "stopping"
    ABANDONED = "abandoned"
    FINAL = "final"
    NO_EFFECT = "no_effect"


class Withdrawn(BaseModel, frozen=True):
    """The answer to `Withdraw`; `live` with STOPPING, `final` with the end states."""

    kind: Literal["withdrawn"] = "withdrawn"
    answer: WithdrawAnswer
    live: LiveAttempt | None = None
    final: Outcome | None = None


LedgerOperation = Annotated[Enqueue | Settle | Withdraw, Field(discriminator="kind")]
LedgerAnswer = Annotated[Enqueued | Settled | Withdrawn, Field(discriminator="kind")]
