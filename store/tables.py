"""Every table of the ledger. Instants are microseconds since the epoch, flags 0 or 1, models JSON.

Rows never leave `store`. Knows no statement; the order in which rows are locked stands in
`store.locking`.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Constraint,
    DefaultClause,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Table,
    Text,
    text,
)
from sqlmodel import Field, SQLModel

NAME_CHARS = 63
KEY_CHARS = 300
ATTEMPT_CHARS = 320
PLACE_CHARS = 130
"""`<cluster>/<machine>`."""

PENDING = text("phase = 'PENDING'")
"""Written out, so that the planner recognises the condition of the partial indexes."""
HELD = text("standing <> 'released'")
BESIDE = text("standing <> 'released' AND neighbour IS NOT NULL")
TO_DELIVER = text("to_deliver = 1")


def _partial(name: str, *columns: str, where: object) -> Index:
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)


def _bytewise(length: int) -> String:
    # Rows are locked and paged in the order Python sorts: by bytes, whatever the server's locale.
    text_type = String(length)
    return text_type.with_variant(String(length, collation="C"), "postgresql")


def _key(length: int) -> Column[str]:
    return Column(_bytewise(length), primary_key=True)


def _points_to(target: str, column: str, ondelete: str | None = None) -> Constraint:
    """Checked where a check is one look-up. PostgreSQL fires a trigger and locks a row for each,
    which was a fifth of a claim; the transactions that write these rows hold the other row locked.
    """
    points = ForeignKeyConstraint([column], [target], ondelete=ondelete)
    return points.ddl_if(dialect="sqlite")


class TaskRow(SQLModel, table=True):
    """Where a task stands. `number` never falls: it is the last attempt number minted."""

    __tablename__ = "task"
    __table_args__ = (
        _partial("ix_task_queue", "partition", "band", "enqueued_at", "key", where=PENDING),
        _partial("ix_task_not_before", "partition", "not_before", where=PENDING),
        _partial(
            "ix_task_not_after",
            "partition",
            "not_after",
            where=text("phase = 'PENDING' AND not_after IS NOT NULL"),
        ),
        Index("ix_task_by_age", "enqueued_at", "key"),
        Index("ix_task_by_team", "team", "enqueued_at", "key"),
        Index("ix_task_by_phase", "phase", "enqueued_at", "key"),
    )

    key: str = Field(sa_column=_key(KEY_CHARS))
    team: str = Field(max_length=NAME_CHARS)
    partition: int
    phase: str = Field(max_length=12)
    band: int
    service: str | None = Field(default=None, max_length=NAME_CHARS)
    digest: str = Field(max_length=64)
    shape: str = Field(max_length=16)
    number: int = 0
    enqueued_at: int = Field(sa_type=BigInteger)
    asked_at: int = Field(sa_type=BigInteger)
    """When a run of its workflow last enqueued it."""
    not_before: int = Field(sa_type=BigInteger)
    not_after: int | None = Field(default=None, sa_type=BigInteger)
    pending_since: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)
    ended_at: int | None = Field(default=None, sa_type=BigInteger)
    cluster: str | None = Field(default=None, max_length=NAME_CHARS)
    machine: str | None = Field(default=None, max_length=NAME_CHARS)
    spent: str = Field(default="{}", sa_type=Text)
    outcome: str | None = Field(default=None, sa_type=Text)
    verdict: str | None = Field(default=None, sa_type=Text)
    """The last verdicts, newest last, each with its instant."""
    events: int = 0
    """How many were ever written."""
    on_loss: str = Field(default="replace_after_fence", max_length=20)
    """From here on: what a claim takes over from the specification, so that it need not read it."""
    grace_s: int = 30
    neighbour: str | None = Field(default=None, sa_type=Text)
    cpu_milli: int = Field(default=0, sa_type=BigInteger)
    memory_mib: int = Field(default=0, sa_type=BigInteger)
    gpu: int = Field(default=0, sa_type=BigInteger)
    disk_mib: int = Field(default=0, sa_type=BigInteger)
    net_mbps: int = Field(default=0, sa_type=BigInteger)
    extra: str | None = Field(default=None, sa_type=Text)


class SpecRow(SQLModel, table=True):
    """What was asked for; apart from the task, so that a change of phase never rewrites it."""

    __tablename__ = "task_spec"

    key: str = Field(
        sa_column=Column(
            _bytewise(KEY_CHARS), ForeignKey("task.key", ondelete="CASCADE"), primary_key=True
        )
    )
    body: str = Field(sa_type=Text)


class ClaimRow(SQLModel, table=True):
    """One attempt: the room it holds while its standing says so, and afterwards its story."""

    __tablename__ = "claim"
    __table_args__ = (
        _partial("ix_claim_held", "cluster", "attempt", where=HELD),
        _partial("ix_claim_place", "place", where=HELD),
        _partial("ix_claim_beside", "place", where=BESIDE),
        _partial("ix_claim_to_deliver", "cluster", "claimed_at", where=TO_DELIVER),
        Index("ix_claim_task", "key", "number"),
        _points_to("task.key", "key", ondelete="CASCADE"),
        _points_to("machine.place", "place"),
    )

    attempt: str = Field(sa_column=_key(ATTEMPT_CHARS))
    key: str = Field(sa_type=_bytewise(KEY_CHARS))
    number: int
    team: str = Field(max_length=NAME_CHARS)
    cluster: str = Field(max_length=NAME_CHARS)
    place: str = Field(sa_type=_bytewise(PLACE_CHARS))
    epoch: int
    """The cluster's when the claim was made."""
    standing: str = Field(max_length=8)
    state: str = Field(max_length=8)
    on_loss: str = Field(max_length=20)
    grace_s: int
    neighbour: str | None = Field(default=None, sa_type=Text)
    cpu_milli: int = Field(default=0, sa_type=BigInteger)
    memory_mib: int = Field(default=0, sa_type=BigInteger)
    gpu: int = Field(default=0, sa_type=BigInteger)
    disk_mib: int = Field(default=0, sa_type=BigInteger)
    net_mbps: int = Field(default=0, sa_type=BigInteger)
    extra: str | None = Field(default=None, sa_type=Text)
    to_deliver: int = 1
    """1 while an order about it waits for the agent's answer."""
    stop_cause: str | None = Field(default=None, max_length=20)
    stop_sent: int = 0
    unanswered_since: int | None = Field(default=None, sa_type=BigInteger)
    """When the agent first answered a delivery, and left this offer of it out."""
    stop_epoch: int | None = None
    """The epoch under which the agent took the stop order."""
    inquiry: int = 0
    adopted: int = 0
    fenced: str | None = Field(default=None, max_length=20)
    """The reason, once its cluster is fenced or it is superseded; its workflow must be told."""
    vouched: int = 0
    """1 once somebody has confirmed that it does not run: it holds no room any more."""
    claimed_at: int = Field(sa_type=BigInteger)
    admitted_at: int | None = Field(default=None, sa_type=BigInteger)
    started_at: int | None = Field(default=None, sa_type=BigInteger)
    ended_at: int | None = Field(default=None, sa_type=BigInteger)
    settled_at: int | None = Field(default=None, sa_type=BigInteger)
    ending: str | None = Field(default=None, sa_type=Text)
    late_ending: str | None = Field(default=None, sa_type=Text)


class EventRow(SQLModel, table=True):
    """A transition of a task, in a ring of slots: the newest so many are kept."""

    __tablename__ = "event"
    __table_args__ = (_points_to("task.key", "key", ondelete="CASCADE"),)

    key: str = Field(sa_column=_key(KEY_CHARS))
    slot: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    seq: int
    at: int = Field(sa_type=BigInteger)
    kind: str = Field(max_length=16)
    number: int = 0
    detail: str = Field(default="", sa_type=Text)


class MachineRow(SQLModel, table=True):
    """Inventory of one machine, and the sum of the claims on it."""

    __tablename__ = "machine"
    __table_args__ = (
        Index("ix_machine_revision", "revision"),
        Index("ix_machine_cluster", "cluster", "name"),
    )

    place: str = Field(sa_column=_key(PLACE_CHARS))
    cluster: str = Field(max_length=NAME_CHARS)
    name: str = Field(max_length=NAME_CHARS)
    instance: str
    zone: str = Field(default="", max_length=NAME_CHARS)
    rack: str = Field(default="", max_length=NAME_CHARS)
    labels: str = Field(default="{}", sa_type=Text)
    taints: str = Field(default="[]", sa_type=Text)
    class_digest: str = Field(max_length=32)
    cap_cpu_milli: int = Field(default=0, sa_type=BigInteger)
    cap_memory_mib: int = Field(default=0, sa_type=BigInteger)
    cap_gpu: int = Field(default=0, sa_type=BigInteger)
    cap_disk_mib: int = Field(default=0, sa_type=BigInteger)
    cap_net_mbps: int = Field(default=0, sa_type=BigInteger)
    cap_extra: str | None = Field(default=None, sa_type=Text)
    used_cpu_milli: int = Field(default=0, sa_type=BigInteger)
    used_memory_mib: int = Field(default=0, sa_type=BigInteger)
    used_gpu: int = Field(default=0, sa_type=BigInteger)
    used_disk_mib: int = Field(default=0, sa_type=BigInteger)
    used_net_mbps: int = Field(default=0, sa_type=BigInteger)
    used_extra: str | None = Field(default=None, sa_type=Text)
    cordoned: int = 0
    cordoned_by: str = ""
    reachable: int = 1
    shrunk: int = 0
    """1 once it came back with less than before: it may then hold more than it has."""
    revision: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class MachineClassRow(SQLModel, table=True):
    """The distinct kinds of machines, and how many there are of each."""

    __tablename__ = "machine_class"

    digest: str = Field(sa_column=_key(32))
    body: str = Field(sa_type=Text)
    machines: int = 0


class ClusterRow(SQLModel, table=True):
    """Reachability and lease epoch of one cluster, as its ClusterWorkflow commits them."""

    __tablename__ = "cluster"

    name: str = Field(sa_column=_key(NAME_CHARS))
    state: str = Field(max_length=10)
    epoch: int = 0
    instance: str = ""
    http_address: str = ""
    site: str = ""
    registered_at: int = Field(sa_type=BigInteger)
    heard_at: int = Field(sa_type=BigInteger)
    silent_since: int | None = Field(default=None, sa_type=BigInteger)
    delivering_since: int | None = Field(default=None, sa_type=BigInteger)
    """Since when deliveries have succeeded without a failure."""
    delivered_at: int | None = Field(default=None, sa_type=BigInteger)
    confirmed_by: str = ""
    machines_braked_since: int | None = Field(default=None, sa_type=BigInteger)
    """Since when its agent holds the brake on losses of machines."""


class UsageRow(SQLModel, table=True):
    """What the open claims of a team hold: remnants are not charged."""

    __tablename__ = "usage"

    team: str = Field(sa_column=_key(NAME_CHARS))
    cpu_milli: int = Field(default=0, sa_type=BigInteger)
    memory_mib: int = Field(default=0, sa_type=BigInteger)
    gpu: int = Field(default=0, sa_type=BigInteger)
    disk_mib: int = Field(default=0, sa_type=BigInteger)
    net_mbps: int = Field(default=0, sa_type=BigInteger)
    extra: str | None = Field(default=None, sa_type=Text)


class PartitionRow(SQLModel, table=True):
    """The bell of one partition. `wakes` counts every reason to look again."""

    __tablename__ = "partition"

    number: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    bell: str = Field(max_length=4)
    wakes: int = Field(default=0, sa_type=BigInteger)
    at: int = Field(sa_type=BigInteger)


class CooldownRow(SQLModel, table=True):
    """Lately a cluster has refused a shape; `until` is set while it is not offered the shape."""

    __tablename__ = "cooldown"
    __table_args__ = (Index("ix_cooldown_until", "until"),)

    cluster: str = Field(sa_column=_key(NAME_CHARS))
    shape: str = Field(sa_column=_key(16))
    refusals: str = Field(default="[]", sa_type=Text)
    until: int = Field(default=0, sa_type=BigInteger)
    step_s: int = 0


class BrakeRow(SQLModel, table=True):
    """The stop on mass replacement: one row."""

    __tablename__ = "brake"

    id: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    held: int = 0
    since: int | None = Field(default=None, sa_type=BigInteger)
    by: str = ""


class DoubtfulMachineRow(SQLModel, table=True):
    """What its agent counts there is not what the claims say: the auditor asks for its list."""

    __tablename__ = "doubtful_machine"
    __table_args__ = (Index("ix_doubtful_machine", "cluster", "since"),)

    place: str = Field(sa_column=_key(PLACE_CHARS))
    cluster: str = Field(max_length=NAME_CHARS)
    since: int = Field(sa_type=BigInteger)


class DrainRow(SQLModel, table=True):
    """A machine that is being emptied, until an operator ends that."""

    __tablename__ = "drain"
    __table_args__ = (Index("ix_drain_due", "cluster", "looked_at"),)

    place: str = Field(sa_column=_key(PLACE_CHARS))
    cluster: str = Field(max_length=NAME_CHARS)
    by: str = ""
    began_at: int = Field(sa_type=BigInteger)
    deadline: int | None = Field(default=None, sa_type=BigInteger)
    """From then on its attempts are stopped, whether or not there is room elsewhere."""
    looked_at: int = Field(default=0, sa_type=BigInteger)
    cordoned_before: int = 0
    blocked: str = Field(default="[]", sa_type=Text)
    """Tasks that found no room elsewhere when it was looked at last."""


class ClusterDrainRow(SQLModel, table=True):
    """A cluster that is being emptied as a whole: machines that join it are, too."""

    __tablename__ = "cluster_drain"

    cluster: str = Field(sa_column=_key(NAME_CHARS))
    by: str = ""
    began_at: int = Field(sa_type=BigInteger)
    deadline: int | None = Field(default=None, sa_type=BigInteger)


class DifferenceRow(SQLModel, table=True):
    """Two facts that should agree and do not, until a look finds that they do."""

    __tablename__ = "difference"
    __table_args__ = (Index("ix_difference_standing", "standing", "last_seen"),)

    fault: str = Field(sa_column=_key(40))
    subject: str = Field(sa_column=_key(ATTEMPT_CHARS))
    """A place, a team, a task or an attempt, as the fault says."""
    place: str = Field(default="", max_length=PLACE_CHARS)
    standing: str = Field(max_length=8)
    """`doubt`: to be looked at again; `standing`: certain; `healed`."""
    expected: str = Field(sa_type=Text)
    found: str = Field(sa_type=Text)
    healing: str = Field(default="", sa_type=Text)
    """What was done about it last."""
    run: int = Field(sa_type=BigInteger)
    """The audit that saw it last."""
    first_seen: int = Field(sa_type=BigInteger)
    last_seen: int = Field(sa_type=BigInteger)
    healed_at: int | None = Field(default=None, sa_type=BigInteger)


class AuditCountRow(SQLModel, table=True):
    """How often each kind of difference was certain, and how often one has gone."""

    __tablename__ = "audit_count"

    fault: str = Field(sa_column=_key(40))
    found: int = Field(default=0, sa_type=BigInteger)
    healed: int = Field(default=0, sa_type=BigInteger)


class AuditRunRow(SQLModel, table=True):
    """The last audit: one row."""

    __tablename__ = "audit_run"

    id: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    run: int = Field(default=0, sa_type=BigInteger)
    began_at: int = Field(sa_type=BigInteger)
    ended_at: int | None = Field(default=None, sa_type=BigInteger)
    """None while it is under way."""
    looked_at: int = Field(default=0, sa_type=BigInteger)
    """Rows it has compared."""
    machines_asked: int = 0
    clusters_unheard: int = 0
    """Agents that did not answer when they were asked for lists."""
    after_task: str = Field(default="", max_length=KEY_CHARS)
    """Where the next audit goes on through the tasks that have ended."""


class OperatorActRow(SQLModel, table=True):
    """A person's word that changed what the system may conclude: who, when, about what."""

    __tablename__ = "operator_act"

    seq: int | None = Field(default=None, sa_column=Column(Integer, primary_key=True))
    at: int = Field(sa_type=BigInteger)
    by: str = Field(sa_type=Text)
    act: str = Field(max_length=20)
    subject: str = Field(sa_type=Text)


def _table(model: type[SQLModel]) -> Table:
    """The table, with the model's defaults as the database's own: inserts name what differs."""
    table = SQLModel.metadata.tables[str(model.__tablename__)]
    for name, field in model.model_fields.items():
        if isinstance(field.default, int | str):
            table.c[name].server_default = DefaultClause(str(field.default))
            table.c[name].default = None
    return table


TASK = _table(TaskRow)
SPEC = _table(SpecRow)
CLAIM = _table(ClaimRow)
EVENT = _table(EventRow)
MACHINE = _table(MachineRow)
MACHINE_CLASS = _table(MachineClassRow)
CLUSTER = _table(ClusterRow)
USAGE = _table(UsageRow)
PARTITION = _table(PartitionRow)
COOLDOWN = _table(CooldownRow)
BRAKE = _table(BrakeRow)
DOUBTFUL_MACHINE = _table(DoubtfulMachineRow)
DRAIN = _table(DrainRow)
CLUSTER_DRAIN = _table(ClusterDrainRow)
DIFFERENCE = _table(DifferenceRow)
AUDIT_COUNT = _table(AuditCountRow)
AUDIT_RUN = _table(AuditRunRow)
OPERATOR_ACT = _table(OperatorActRow)
METADATA = SQLModel.metadata
