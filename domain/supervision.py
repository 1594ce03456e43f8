"""The words of cluster supervision: what a ClusterWorkflow asks of ledger, agent and clock.

Each question has one answer; the machine that asks them is in domain/cluster.py.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from domain.protocol import (
    ClusterMessage,
    ConfirmLost,
    CordonMachines,
    Delivery,
    DeliveryAnswer,
    DrainMachines,
    Grant,
    GrantAnswer,
    Heartbeat,
    LiftBrake,
    LiftMachines,
    Orphan,
    Register,
)


class Reach(StrEnum):
    """What the scheduler may conclude from a cluster's silence."""

    ABSENT = "absent"
    """No agent was ever granted a lease."""
    REACHABLE = "reachable"
    SUSPECT = "suspect"
    """Silent: nothing new is placed there."""
    FENCED = "fenced"
    """Its deadline has certainly passed: nothing there can be running."""
    CONFIRMED = "confirmed"
    """An operator vouches that it is lost."""


class LeaseTerms(BaseModel, frozen=True):
    """The numbers that scheduler, agent and keepers agree on."""

    heartbeat_s: float = Field(default=10, gt=0)
    suspect_s: float = Field(default=30, gt=0)
    lease_s: float = Field(default=60, gt=0)
    drift_percent: float = Field(default=1, ge=0)
    margin_s: float = Field(default=5, ge=0)
    slices: int = Field(default=4, ge=1)
    late_s: float = Field(default=2, gt=0)

    @property
    def slice(self) -> timedelta:
        """Silence is counted in parts of the lease this long."""
        return timedelta(seconds=self.lease_s / self.slices)

    @property
    def slices_needed(self) -> int:
        """Wholly silent slices after which the deadline has passed; one more than it takes."""
        wait_s = self.lease_s * (1 + self.drift_percent / 100) + self.margin_s
        return ceil(wait_s / (self.lease_s / self.slices)) + 1


class BrakeTerms(BaseModel, frozen=True):
    """When so many clusters are silent, and more than this share of all, none is replaced."""

    clusters: int = Field(default=2, ge=1)
    percent: float = Field(default=20, ge=0, le=100)


# --- questions to the ledger, each with its answer ---------------------------------------------


class Open(BaseModel, frozen=True):
    """Begins a run: where does the cluster's row stand?"""

    kind: Literal["open"] = "open"
    cluster: str


class Opened(BaseModel, frozen=True):
    """The row. `epoch` 0: there is none yet."""

    kind: Literal["opened"] = "opened"
    terms: LeaseTerms
    reach: Reach = Reach.ABSENT
    epoch: int = 0
    instance: str = ""


class NoteRegistration(BaseModel, frozen=True):
    """An agent process has begun."""

    kind: Literal["note_registration"] = "note_registration"
    cluster: str
    register_: Register


class NoteHeartbeat(BaseModel, frozen=True):
    """Machines, digests, and that the cluster is in contact. `reachable`: end a suspicion."""

    kind: Literal["note_heartbeat"] = "note_heartbeat"
    cluster: str
    heartbeat: Heartbeat
    reachable: bool


class BeginGrant(BaseModel, frozen=True):
    """One transaction: the fenced state ends, the epoch rises, the closed numbers are read."""

    kind: Literal["begin_grant"] = "begin_grant"
    cluster: str


class GrantBegun(BaseModel, frozen=True):
    """What to send."""

    kind: Literal["grant_begun"] = "grant_begun"
    grant: Grant


class NoteGranted(BaseModel, frozen=True):
    """The agent has taken the grant: it is reachable, and these remnants have ended."""

    kind: Literal["note_granted"] = "note_granted"
    cluster: str
    answer: GrantAnswer


class LoadOrders(BaseModel, frozen=True):
    """What has no answer yet. `deliveries_succeed`: old offers become stop orders first."""

    kind: Literal["load_orders"] = "load_orders"
    cluster: str
    deliveries_succeed: bool


class OrdersLoaded(BaseModel, frozen=True):
    """`full`: there are more than one delivery can hold."""

    kind: Literal["orders_loaded"] = "orders_loaded"
    delivery: Delivery | None
    full: bool = False


class NoteAnswers(BaseModel, frozen=True):
    """The agent's words on a delivery."""

    kind: Literal["note_answers"] = "note_answers"
    cluster: str
    answer: DeliveryAnswer
    left_out: tuple[str, ...] = ()
    """Attempt ids of offers that were delivered, and not answered."""


class MarkSuspect(BaseModel, frozen=True):
    """Silent for too long; the same transaction may set the brake."""

    kind: Literal["mark_suspect"] = "mark_suspect"
    cluster: str
    epoch: int


class LookAtBrake(BaseModel, frozen=True):
    """Asked at each silent slice: while the brake holds, silence is not counted."""

    kind: Literal["look_at_brake"] = "look_at_brake"
    cluster: str


class BrakeSeen(BaseModel, frozen=True):
    """Whether the brake holds."""

    kind: Literal["brake_seen"] = "brake_seen"
    braked: bool


class Fence(BaseModel, frozen=True):
    """The deadline has certainly passed; refused under the brake or a newer epoch."""

    kind: Literal["fence"] = "fence"
    cluster: str
    epoch: int


class FenceAnswer(BaseModel, frozen=True):
    """Whether the row says fenced now."""

    kind: Literal["fence_answer"] = "fence_answer"
    fenced: bool


class NoteOrphan(BaseModel, frozen=True):
    """Release the claim of an attempt whose workflow is gone."""

    kind: Literal["note_orphan"] = "note_orphan"
    cluster: str
    orphan: Orphan


class NoteConfirmed(BaseModel, frozen=True):
    """An operator's word that the cluster, or one machine of it, is lost."""

    kind: Literal["note_confirmed"] = "note_confirmed"
    cluster: str
    confirmed: ConfirmLost


class NoteCordon(BaseModel, frozen=True):
    """Stop or allow placements on machines."""

    kind: Literal["note_cordon"] = "note_cordon"
    cluster: str
    cordon: CordonMachines


class NoteDrain(BaseModel, frozen=True):
    """Begin or end the drain of machines."""

    kind: Literal["note_drain"] = "note_drain"
    cluster: str
    drain: DrainMachines


class NoteLift(BaseModel, frozen=True):
    """An operator's word about a brake: the one on clusters is lifted here, the other by agents."""

    kind: Literal["note_lift"] = "note_lift"
    cluster: str
    lift: LiftBrake


class Noted(BaseModel, frozen=True):
    """Done. `undelivered`: orders wait for the agent. `epoch`: the row's; 0: not said."""

    kind: Literal["noted"] = "noted"
    undelivered: bool = False
    epoch: int = 0
    news: bool = False
    """Orders have come since the last were loaded; said in place of a hint."""


ClusterOperation = Annotated[
    Open
    | NoteRegistration
    | NoteHeartbeat
    | BeginGrant
    | NoteGranted
    | LoadOrders
    | NoteAnswers
    | MarkSuspect
    | LookAtBrake
    | Fence
    | NoteOrphan
    | NoteConfirmed
    | NoteCordon
    | NoteDrain
    | NoteLift,
    Field(discriminator="kind"),
]
ClusterAnswer = Annotated[
    Opened | GrantBegun | OrdersLoaded | BrakeSeen | FenceAnswer | Noted,
    Field(discriminator="kind"),
]


# --- what goes on beside the loop, and how it reports ------------------------------------------


class SendGrant(BaseModel, frozen=True):
    """To the agent; ends as Granted or GrantFailed."""

    kind: Literal["send_grant"] = "send_grant"
    grant: Grant


class Granted(BaseModel, frozen=True):
    """The agent's answer."""

    kind: Literal["granted"] = "granted"
    answer: GrantAnswer


class GrantFailed(BaseModel, frozen=True):
    """No answer: the agent may have had it or not."""

    kind: Literal["grant_failed"] = "grant_failed"
    epoch: int


class SendDelivery(BaseModel, frozen=True):
    """To the agent; ends as Delivered or DeliveryFailed."""

    kind: Literal["send_delivery"] = "send_delivery"
    delivery: Delivery


class Delivered(BaseModel, frozen=True):
    """The agent's answer."""

    kind: Literal["delivered"] = "delivered"
    answer: DeliveryAnswer
    left_out: tuple[str, ...] = ()
    """Attempt ids of offers of this delivery without an answer."""


class DeliveryFailed(BaseModel, frozen=True):
    """No answer; the orders go again with the next hint or heartbeat."""

    kind: Literal["delivery_failed"] = "delivery_failed"


class ArmSlice(BaseModel, frozen=True):
    """Wake the loop when the slice that began then is over."""

    kind: Literal["arm_slice"] = "arm_slice"
    began: datetime
    wait: timedelta


class SliceEnded(BaseModel, frozen=True):
    """The timer of that slice has fired."""

    kind: Literal["slice_ended"] = "slice_ended"
    began: datetime


class ArmSuspicion(BaseModel, frozen=True):
    """Wake the loop when the silence since then has become suspect."""

    kind: Literal["arm_suspicion"] = "arm_suspicion"
    heard_at: datetime
    wait: timedelta


class SuspicionDue(BaseModel, frozen=True):
    """The timer of that silence has fired."""

    kind: Literal["suspicion_due"] = "suspicion_due"
    heard_at: datetime
    due: datetime


class SendLift(BaseModel, frozen=True):
    """Tell the agent; who waits for it looks at the next heartbeat."""

    kind: Literal["send_lift"] = "send_lift"
    lift: LiftMachines


class PageLoss(BaseModel, frozen=True):
    """Close and tell what the row's state says must be replaced, until every number is settled."""

    kind: Literal["page_loss"] = "page_loss"
    cluster: str


class LossPaged(BaseModel, frozen=True):
    """`reach`: what the row says now (a lifted brake unfences it); None: not all have settled."""

    kind: Literal["loss_paged"] = "loss_paged"
    reach: Reach | None = None
    told: int = 0
    gone: int = 0


ClusterEffect = (
    Open
    | NoteRegistration
    | NoteHeartbeat
    | BeginGrant
    | NoteGranted
    | LoadOrders
    | NoteAnswers
    | MarkSuspect
    | LookAtBrake
    | Fence
    | NoteOrphan
    | NoteConfirmed
    | NoteCordon
    | NoteDrain
    | NoteLift
    | SendLift
    | SendGrant
    | SendDelivery
    | ArmSlice
    | ArmSuspicion
    | PageLoss
)
ClusterNews = Annotated[
    Granted | GrantFailed | Delivered | DeliveryFailed | SliceEnded | SuspicionDue | LossPaged,
    Field(discriminator="kind"),
]
"""What the work beside the loop puts into the inbox."""
ClusterEvent = ClusterMessage | ClusterNews | ClusterAnswer
