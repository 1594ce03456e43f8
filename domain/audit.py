"""The words of the audit: what can differ, what the auditor asks, and what it has found.

Claims, quota and what agents report are three accounts of one thing. Knows no row and no clock.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from domain.protocol import PROTOCOL_VERSION, StopOrder
from domain.views import BrakeView

AUDIT_SCHEDULE = "drystone-audit"
AUDIT_WORKFLOW_ID = "audit"
"""The schedule adds the instant of each audit."""
MACHINES_PER_ROLL_MAX = 100
ATTEMPTS_PER_ROLL_MAX = 2_000
"""More do not fit into one answer: the machines left out are asked again with the next audit."""
CLUSTERS_PER_AUDIT_MAX = 200
DIFFERENCES_PER_PAGE_MAX = 1_000


class Fault(StrEnum):
    """What does not agree; the name says which of the two accounts is believed."""

    USED_IS_NOT_THE_SUM = "used_is_not_the_sum"
    OVER_CAPACITY = "over_capacity"
    QUOTA_IS_NOT_THE_SUM = "quota_is_not_the_sum"
    CLAIMED_WITHOUT_OPEN_CLAIM = "claimed_without_open_claim"
    OPEN_CLAIM_OF_ANOTHER_NUMBER = "open_claim_of_another_number"
    FINAL_WITHOUT_OUTCOME = "final_without_outcome"
    DELIVERS_WHAT_IS_RELEASED = "delivers_what_is_released"
    CLAIM_NOT_RUNNING = "claim_not_running"
    """The agent had admitted it and does not list it."""
    RUNS_WITHOUT_CLAIM = "runs_without_claim"
    """The agent lists an attempt for which nobody holds a claim."""


LEDGER_FAULTS = frozenset(Fault) - {Fault.CLAIM_NOT_RUNNING, Fault.RUNS_WITHOUT_CLAIM}
"""Seen in the ledger alone, in one snapshot; the others need the word of an agent."""


class Certainty(StrEnum):
    """How far the auditor has come with a difference."""

    DOUBT = "doubt"
    """Seen once: what is in flight looks the same."""
    STANDING = "standing"
    HEALED = "healed"


class DifferenceView(BaseModel, frozen=True):
    """One difference, what it is about, and what was done."""

    fault: Fault
    subject: str
    """A machine's place, a team, a task or an attempt, as the fault says."""
    place: str = ""
    certainty: Certainty
    expected: str
    found: str
    healing: str = ""
    first_seen: datetime
    last_seen: datetime
    healed_at: datetime | None = None


class FaultCount(BaseModel, frozen=True):
    """Over the life of this ledger."""

    found: int = 0
    healed: int = 0
    standing: int = 0


class OperatorAct(BaseModel, frozen=True):
    """A person's word: who, when, about what."""

    at: datetime
    by: str
    act: str
    subject: str


class AuditReport(BaseModel, frozen=True):
    """The last audit, what stands now, and what was healed lately."""

    run: int = 0
    """0: there was none yet."""
    began_at: datetime | None = None
    ended_at: datetime | None = None
    """None while it is under way."""
    looked_at: int = 0
    """Rows it has compared."""
    machines_asked: int = 0
    clusters_unheard: int = 0
    """Agents that did not say what they run."""
    machines_doubted: int = 0
    """Their agents count something else than the claims do; their lists are still to be read."""
    counts: dict[Fault, FaultCount] = {}
    standing: tuple[DifferenceView, ...] = ()
    healed: tuple[DifferenceView, ...] = ()
    """The newest, newest first."""
    acts: tuple[OperatorAct, ...] = ()
    """The newest words of operators, newest first."""


class Alarms(BaseModel, frozen=True):
    """What a person should look at, and the numbers behind it."""

    texts: tuple[str, ...] = ()
    brake: BrakeView
    counts: dict[Fault, FaultCount]
    audited_at: datetime | None = None
    """When the last audit ended."""
    machines_doubted: int = 0
    acts: dict[str, int] = {}
    """Words of operators, by what they did."""


# --- to an agent: activity `roll_call` on its queue --------------------------------------------


class RollCall(BaseModel, frozen=True):
    """Say of these machines which attempts you hold there."""

    v: int = PROTOCOL_VERSION
    cluster: str
    machines: tuple[str, ...] = Field(max_length=MACHINES_PER_ROLL_MAX)


class Roll(BaseModel, frozen=True):
    """Attempt ids that an agent counts in a machine's running digest."""

    machine: str
    attempts: tuple[str, ...]


class RollAnswer(BaseModel, frozen=True):
    """A machine that the agent does not know, or that did not fit, is left out."""

    instance: str
    epoch: int
    rolls: tuple[Roll, ...] = ()


# --- questions to the ledger, each with its answer ---------------------------------------------


class Sweep(BaseModel, frozen=True):
    """Look through the ledger, from `part` and `after` on; `run` 0 begins an audit."""

    kind: Literal["sweep"] = "sweep"
    run: int = 0
    part: int = 0
    after: str = ""


class Swept(BaseModel, frozen=True):
    """`part` None: all of it was looked at, and these machines' lists are wanted."""

    kind: Literal["swept"] = "swept"
    run: int
    part: int | None = None
    after: str = ""
    doubts: int = 0
    calls: tuple[RollCall, ...] = ()
    look_again_s: float = 5


class Compare(BaseModel, frozen=True):
    """Hold an agent's lists against the claims; `again`: the second time, so what is seen is so."""

    kind: Literal["compare"] = "compare"
    run: int
    cluster: str
    answer: RollAnswer
    again: bool = False


class Compared(BaseModel, frozen=True):
    """`machines`: to be asked again. `stops`: of attempts that nobody in the world waits for."""

    kind: Literal["compared"] = "compared"
    machines: tuple[str, ...] = ()
    stops: tuple[StopOrder, ...] = ()


class Conclude(BaseModel, frozen=True):
    """Mend what was seen in the ledger, count, forget old news: the end of an audit."""

    kind: Literal["conclude"] = "conclude"
    run: int
    machines_asked: int = 0
    clusters_unheard: int = 0


class Concluded(BaseModel, frozen=True):
    """The result of the audit's workflow."""

    kind: Literal["concluded"] = "concluded"
    run: int
    found: int = 0
    healed: int = 0
    standing: int = 0


AuditOperation = Annotated[Sweep | Compare | Conclude, Field(discriminator="kind")]
AuditAnswer = Annotated[Swept | Compared | Concluded, Field(discriminator="kind")]
