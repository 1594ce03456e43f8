"""Messages between scheduler, agents and keepers: versioned, attempt-scoped, safe to repeat.

A message travels in an envelope `{"v": 1, "sender": ..., "seq": ..., "message": {"kind": ...}}`.
A reader ignores fields it does not know and counts a message that does not fit (`read_*` return
None); it never drops one silently.
"""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from domain.attempt import Ending, StopCause
from domain.ids import attempt_id
from domain.machine import MachineReport
from domain.reasons import Reason
from domain.task import TaskSpec

PROTOCOL_VERSION = 1
MACHINES_PER_MESSAGE_MAX = 100
ORDERS_PER_DELIVERY_MAX = 200
DELIVERY_BYTES_MAX = 1_000_000
"""Orders of one delivery, in bytes of JSON: half of Temporal's limit for a payload."""


# --- to a TaskWorkflow: signal `report` -------------------------------------------------------


class AttemptMessage(BaseModel, frozen=True):
    """What every report of an attempt carries."""

    number: int = Field(ge=1)
    cluster: str
    machine: str = ""
    at: datetime


class Placed(AttemptMessage, frozen=True):
    """The ledger has claimed a machine (a hint; not sent while the budget of events forbids it)."""

    kind: Literal["placed"] = "placed"


class Started(AttemptMessage, frozen=True):
    """The child was executed; sent only when the attempt outlives 2 s."""

    kind: Literal["started"] = "started"


class Progress(AttemptMessage, frozen=True):
    """A note for people; at most one a minute and on change only."""

    kind: Literal["progress"] = "progress"
    note: str = Field(max_length=500)


class Ended(AttemptMessage, frozen=True):
    """The attempt has ended: exited, refused, stopped or lost, as `ending.kind` says."""

    kind: Literal["ended"] = "ended"
    ending: Ending
    started_at: datetime | None = None


class Fenced(AttemptMessage, frozen=True):
    """The number was closed because its cluster's (or machine's) deadline has certainly passed."""

    kind: Literal["fenced"] = "fenced"
    reason: Reason = Reason.CLUSTER_LOST


class StopRequested(AttemptMessage, frozen=True):
    """Somebody wrote a stop order for this attempt: preemption, drain. A hint for the display."""

    kind: Literal["stop_requested"] = "stop_requested"
    cause: StopCause


class Expire(BaseModel, frozen=True):
    """A round found the row past its `not_after`."""

    kind: Literal["expire"] = "expire"


class Cancel(BaseModel, frozen=True):
    """A person or program wants the task ended. `abandon`: close it though it may still run."""

    kind: Literal["cancel"] = "cancel"
    abandon: bool = False
    by: str = ""


class ReRead(BaseModel, frozen=True):
    """The workflow may have lost messages (a reset): ask the ledger where the row stands."""

    kind: Literal["re_read"] = "re_read"


TaskMessage = Annotated[
    Placed | Started | Progress | Ended | Fenced | StopRequested | Expire | Cancel | ReRead,
    Field(discriminator="kind"),
]


# --- to a ClusterWorkflow: signal `heartbeat` and others --------------------------------------


class RunningDigest(BaseModel, frozen=True):
    """What runs on one machine: how many attempts, and the xor of their 64-bit hashes."""

    machine: str
    count: int
    xor: int


class MachineState(BaseModel, frozen=True):
    """A machine's keeper fell silent towards its agent, came back, or its loss is certain."""

    machine: str
    reachable: bool


class Register(BaseModel, frozen=True):
    """An agent process has started: it has no lease until it is granted one."""

    kind: Literal["register"] = "register"
    instance: str
    http_address: str = ""
    site: str = ""


class Heartbeat(BaseModel, frozen=True):
    """Sent every `heartbeat_s`; the acknowledgement extends the agent's lease."""

    kind: Literal["heartbeat"] = "heartbeat"
    instance: str
    epoch: int
    seq: int
    machines: tuple[MachineReport, ...] = Field(default=(), max_length=MACHINES_PER_MESSAGE_MAX)
    """New or changed machines."""
    states: tuple[MachineState, ...] = ()
    running: tuple[RunningDigest, ...] = ()
    http_address: str = ""
    site: str = ""
    braked: bool = False
    """Too many of its machines are silent: it gives none of them up."""


class Orphan(BaseModel, frozen=True):
    """An attempt whose workflow is gone: it has ended, release its claim and close its row."""

    kind: Literal["orphan"] = "orphan"
    key: str
    number: int
    machine: str
    ending: Ending
    at: datetime


class DeliveryHint(BaseModel, frozen=True):
    """There may be undelivered offers or stop orders in the ledger."""

    kind: Literal["delivery_hint"] = "delivery_hint"


class ConfirmLost(BaseModel, frozen=True):
    """An operator vouches that nothing of this cluster (or machine) runs any more."""

    kind: Literal["confirm_lost"] = "confirm_lost"
    machine: str | None = None
    by: str
    at: datetime


class CordonMachines(BaseModel, frozen=True):
    """Stop or allow new placements on machines of this cluster."""

    kind: Literal["cordon"] = "cordon"
    machines: tuple[str, ...]
    cordoned: bool
    by: str = ""


class DrainMachines(BaseModel, frozen=True):
    """Empty machines of this cluster, all of it without names, or have that end.

    They are cordoned, and their attempts stopped as there is room elsewhere; from the deadline on
    in any case.
    """

    kind: Literal["drain"] = "drain"
    machines: tuple[str, ...] = ()
    drained: bool
    deadline: datetime | None = None
    by: str = ""


class LiftBrake(BaseModel, frozen=True):
    """An operator lifts the brake: the one on clusters, or its agent's on this one's machines."""

    kind: Literal["lift_brake"] = "lift_brake"
    brake: Literal["clusters", "machines"]
    by: str
    at: datetime


ClusterMessage = Annotated[
    Register
    | Heartbeat
    | Orphan
    | DeliveryHint
    | ConfirmLost
    | CordonMachines
    | DrainMachines
    | LiftBrake,
    Field(discriminator="kind"),
]


# --- scheduler to agent: activities `deliver` and `grant` on the agent's queue ----------------


class Offer(BaseModel, frozen=True):
    """An assignment to admit or refuse. `number` is the fence."""

    kind: Literal["offer"] = "offer"
    key: str
    number: int
    machine: str
    spec: TaskSpec


class StopOrder(BaseModel, frozen=True):
    """End an attempt; answered by its `Ended` report, whatever it was doing."""

    kind: Literal["stop"] = "stop"
    key: str
    number: int
    machine: str
    cause: StopCause
    grace_s: int


class Inquiry(BaseModel, frozen=True):
    """A workflow adopted this attempt and may have missed its report.

    Send the ending again if it has ended; report it lost (ATTEMPT_UNKNOWN) if neither agent nor
    keeper knows it.
    """

    kind: Literal["inquiry"] = "inquiry"
    key: str
    number: int
    machine: str


Order = Annotated[Offer | StopOrder | Inquiry, Field(discriminator="kind")]


class Delivery(BaseModel, frozen=True):
    """Orders for one cluster under one epoch."""

    v: int = PROTOCOL_VERSION
    cluster: str
    epoch: int
    orders: tuple[Order, ...] = Field(max_length=ORDERS_PER_DELIVERY_MAX)


class OrderAnswer(BaseModel, frozen=True):
    """The agent's word on one order.

    admitted: the attempt is journalled and will be started (or runs, or has ended and is reported);
    refused: an Ended report of kind refused follows; taken: a stop or inquiry is journalled, an
    Ended report follows when there is something to report. `stale`: the order was of an older
    epoch and did nothing; it comes again.
    """

    key: str
    number: int
    order: Literal["offer", "stop", "inquiry"]
    answer: Literal["admitted", "refused", "taken", "stale"]
    reason: Reason | None = None


class DeliveryAnswer(BaseModel, frozen=True):
    """One answer per order; an order without one is sent again."""

    instance: str
    epoch: int
    answers: tuple[OrderAnswer, ...]


def left_out(delivery: Delivery, answer: DeliveryAnswer) -> tuple[str, ...]:
    """Attempt ids of the delivery's offers to which the agent has said nothing."""
    said = {(one.key, one.number) for one in answer.answers if one.order == "offer"}
    return tuple(
        attempt_id(order.key, order.number)
        for order in delivery.orders
        if isinstance(order, Offer) and (order.key, order.number) not in said
    )


class Grant(BaseModel, frozen=True):
    """Begins a lease after silence or restart: the new epoch, and the closed numbers held there."""

    v: int = PROTOCOL_VERSION
    cluster: str
    epoch: int
    closed: tuple[str, ...]
    """Attempt ids whose reports no longer count: kill them unthawed, then report them ended."""


class GrantAnswer(BaseModel, frozen=True):
    """Which of the closed attempts certainly do not run (ended, or never were there)."""

    instance: str
    epoch: int
    ended: tuple[str, ...] = ()


class LiftMachines(BaseModel, frozen=True):
    """An operator lifts the brake that an agent holds on losses of machines."""

    v: int = PROTOCOL_VERSION
    cluster: str
    by: str


class LiftAnswer(BaseModel, frozen=True):
    """Whether it held."""

    instance: str
    lifted: bool


# --- agent and keeper: one WebSocket, dialled by the keeper, JSON texts -----------------------


class KeeperHello(BaseModel, frozen=True):
    """First message of a connection: who the keeper is and everything it knows of attempts."""

    kind: Literal["hello"] = "hello"
    v: int = PROTOCOL_VERSION
    machine: MachineReport
    epoch: int
    """Of the lease it holds; 0 when none was granted or it has passed: only a grant helps."""
    live: tuple[str, ...]
    """Attempt ids that are running or frozen."""
    token: str = ""
    leaving: bool = False
    """It is being stopped: nothing more starts before another instance says hello."""


class LeaseQuestion(BaseModel, frozen=True):
    """How long may I go on? The keeper counts the answer from the moment it sent this."""

    kind: Literal["lease_question"] = "lease_question"
    question: int
    epoch: int = 0
    """Of the lease it holds; 0 when none was granted or it has passed: answer with a grant."""
    running: tuple[str, ...] = ()
    leaving: bool = False
    """As in the hello: asked at once when the keeper is told to stop, so that it is its goodbye."""


class LeaseAnswer(BaseModel, frozen=True):
    """Remaining milliseconds of the agent's own lease, at most; 0 = none."""

    kind: Literal["lease_answer"] = "lease_answer"
    question: int
    epoch: int
    remaining_ms: int


class KeeperGrant(BaseModel, frozen=True):
    """Begins a keeper's lease, counted from its question: thaw the open, kill the closed."""

    kind: Literal["grant"] = "grant"
    question: int
    epoch: int
    remaining_ms: int
    closed: tuple[str, ...]


class StartAttempt(BaseModel, frozen=True):
    """Start this attempt unless its number is known already (running, ended, or a tombstone)."""

    kind: Literal["start"] = "start"
    attempt: str
    key: str
    number: int
    cluster: str
    spec: TaskSpec


class StopAttempt(BaseModel, frozen=True):
    """Stop the tree: signal, grace, kill. Unknown attempt: leave a tombstone and say stopped."""

    kind: Literal["stop"] = "stop"
    attempt: str
    cause: StopCause
    grace_s: int


class Forget(BaseModel, frozen=True):
    """The agent has these endings safely: the keeper may drop them (folders are swept later)."""

    kind: Literal["forget"] = "forget"
    attempts: tuple[str, ...]


class LogQuestion(BaseModel, frozen=True):
    """A chunk of an attempt's output; `offset` in bytes of everything ever written to it."""

    kind: Literal["log_question"] = "log_question"
    question: int
    attempt: str
    stream: Literal["stdout", "stderr"]
    offset: int = Field(ge=0)
    limit: int = Field(ge=1, le=1_000_000)


class LogAnswer(BaseModel, frozen=True):
    """`data` is base64; `first` > offset asked: older output was rotated away; `ended`: no more."""

    kind: Literal["log_answer"] = "log_answer"
    question: int
    known: bool
    first: int = 0
    data: str = ""
    ended: bool = False


class StartAnswer(BaseModel, frozen=True):
    """Over the agent's HTTP address: the keeper's stamp of a start, once it is known."""

    started_at: datetime | None = None


class AttemptStarted(BaseModel, frozen=True):
    """The child was executed at `at` (stamped just after the exec)."""

    kind: Literal["attempt_started"] = "attempt_started"
    attempt: str
    at: datetime


class AttemptEnded(BaseModel, frozen=True):
    """Kept and sent again by the keeper until the agent says forget."""

    kind: Literal["attempt_ended"] = "attempt_ended"
    attempt: str
    ending: Ending
    started_at: datetime | None
    at: datetime


KeeperMessage = Annotated[
    KeeperHello | LeaseQuestion | LogAnswer | AttemptStarted | AttemptEnded,
    Field(discriminator="kind"),
]
AgentMessage = Annotated[
    LeaseAnswer | KeeperGrant | StartAttempt | StopAttempt | Forget | LogQuestion,
    Field(discriminator="kind"),
]


# --- envelopes --------------------------------------------------------------------------------


class TaskEnvelope(BaseModel, frozen=True):
    """What signal `report` of a TaskWorkflow carries."""

    v: int = PROTOCOL_VERSION
    sender: str = ""
    seq: int = 0
    message: TaskMessage


class ClusterEnvelope(BaseModel, frozen=True):
    """What signal `tell` of a ClusterWorkflow carries."""

    v: int = PROTOCOL_VERSION
    sender: str = ""
    seq: int = 0
    message: ClusterMessage


_Envelope = TypeVar("_Envelope", bound=BaseModel)
_TASK = TypeAdapter(TaskEnvelope)
_CLUSTER = TypeAdapter(ClusterEnvelope)


def read_task_envelope(raw: Any) -> TaskEnvelope | None:
    """The message, or None when it does not fit (the caller counts and shows that)."""
    return _read(_TASK, raw)


def read_cluster_envelope(raw: Any) -> ClusterEnvelope | None:
    """The message, or None when it does not fit (the caller counts and shows that)."""
    return _read(_CLUSTER, raw)


def _read(adapter: TypeAdapter[_Envelope], raw: Any) -> _Envelope | None:
    try:
        read = adapter.validate_python(raw)
    except ValidationError:
        return None
    return read if getattr(read, "v", None) == PROTOCOL_VERSION else None
