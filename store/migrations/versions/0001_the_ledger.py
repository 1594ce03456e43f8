"""The ledger: tasks, claims, machines, clusters, bells."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def _bytewise(length: int) -> sa.String:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    _clusters()
    _machines()
    _queue()
    _attempts()
    _story_and_totals()


def downgrade() -> None:
    for table in (
        "usage",
        "event",
        "claim",
        "task_spec",
        "task",
        "partition",
        "machine_class",
        "machine",
        "brake",
        "cooldown",
        "cluster",
    ):
        op.drop_table(table)


def _clusters() -> None:
    op.create_table(
        "cluster",
        sa.Column("name", _bytewise(63), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("epoch", sa.Integer(), server_default="0", nullable=False),
        sa.Column("instance", sa.String(), server_default="", nullable=False),
        sa.Column("http_address", sa.String(), server_default="", nullable=False),
        sa.Column("site", sa.String(), server_default="", nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.Column("heard_at", sa.BigInteger(), nullable=False),
        sa.Column("silent_since", sa.BigInteger(), nullable=True),
        sa.Column("delivering_since", sa.BigInteger(), nullable=True),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.Column("confirmed_by", sa.String(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "cooldown",
        sa.Column("cluster", _bytewise(63), nullable=False),
        sa.Column("shape", _bytewise(16), nullable=False),
        sa.Column("refusals", sa.Text(), server_default="[]", nullable=False),
        sa.Column("until", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("step_s", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("cluster", "shape"),
    )
    op.create_index("ix_cooldown_until", "cooldown", ["until"], unique=False)
    op.create_table(
        "brake",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("held", sa.Integer(), server_default="0", nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=True),
        sa.Column("by", sa.String(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _machines() -> None:
    op.create_table(
        "machine",
        sa.Column("place", _bytewise(130), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("instance", sa.String(), nullable=False),
        sa.Column("zone", sa.String(length=63), server_default="", nullable=False),
        sa.Column("rack", sa.String(length=63), server_default="", nullable=False),
        sa.Column("labels", sa.Text(), server_default="{}", nullable=False),
        sa.Column("taints", sa.Text(), server_default="[]", nullable=False),
        sa.Column("class_digest", sa.String(length=32), nullable=False),
        sa.Column("cap_cpu_milli", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cap_memory_mib", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cap_gpu", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cap_disk_mib", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cap_net_mbps", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cap_extra", sa.Text(), nullable=True),
        sa.Column("used_cpu_milli", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("used_memory_mib", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("used_gpu", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("used_disk_mib", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("used_net_mbps", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("used_extra", sa.Text(), nullable=True),
        sa.Column("cordoned", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cordoned_by", sa.String(), server_default="", nullable=False),
        sa.Column("reachable", sa.Integer(), server_default="1", nullable=False),
        sa.Column("shrunk", sa.Integer(), server_default="0", nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("place"),
    )
    op.create_index("ix_machine_cluster", "machine", ["cluster", "name"], unique=False)
    op.create_index("ix_machine_revision", "machine", ["revision"], unique=False)
    op.create_table(
        "machine_class",
        sa.Column("digest", _bytewise(32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("machines", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )


def _queue() -> None:
    op.create_table(
        "partition",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bell", sa.String(length=4), nullable=False),
        sa.Column("wakes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "task",
        sa.Column("key", _bytewise(300), nullable=False),
        sa.Column("team", sa.String(length=63), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(length=12), nullable=False),
        sa.Column("band", sa.Integer(), nullable=False),
        sa.Column("service", sa.String(length=63), nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("shape", sa.String(length=16), nullable=False),
        sa.Column("number", sa.Integer(), server_default="0", nullable=False),
        sa.Column("enqueued_at", sa.BigInteger(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.Column("not_after", sa.BigInteger(), nullable=True),
        sa.Column("pending_since", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("cluster", sa.String(length=63), nullable=True),
        sa.Column("machine", sa.String(length=63), nullable=True),
        sa.Column("spent", sa.Text(), server_default="{}", nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("events", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("ix_task_by_age", "task", ["enqueued_at", "key"], unique=False)
    op.create_index("ix_task_by_phase", "task", ["phase", "enqueued_at", "key"], unique=False)
    op.create_index("ix_task_by_team", "task", ["team", "enqueued_at", "key"], unique=False)
    op.create_index(
        "ix_task_not_after",
        "task",
        ["partition", "not_after"],
        unique=False,
        sqlite_where=sa.text("phase = 'PENDING' AND not_after IS NOT NULL"),
        postgresql_where=sa.text("phase = 'PENDING' AND not_after IS NOT NULL"),
    )
    op.create_index(
        "ix_task_not_before",
        "task",
        ["partition", "not_before"],
        unique=False,
        sqlite_where=sa.text("phase = 'PENDING'"),
        postgresql_where=sa.text("phase = 'PENDING'"),
    )
    op.create_index(
        "ix_task_queue",
        "task",
        ["partition", "band", "enqueued_at", "key"],
        unique=False,
        sqlite_where=sa.text("phase = 'PENDING'"),
        postgresql_where=sa.text("phase = 'PENDING'"),
    )
    op.create_table(
        "task_spec",
        sa.Column("key", _bytewise(300), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["task.key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key"),
    )


def _attempts() -> None:
    op.create_table(
        "claim",
        sa.Column("attempt", _bytewise(320), nullable=False),
        sa.Column("key", _bytewise(300), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("team", sa.String(length=63), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("place", _bytewise(130), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("standing", sa.String(length=8), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("on_loss", sa.String(length=20), nullable=False),
        sa.Column("grace_s", sa.Integer(), nullable=False),
        sa.Column("neighbour", sa.Text(), nullable=True),
        sa.Column("cpu_milli", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("gpu", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("disk_mib", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("net_mbps", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("extra", sa.Text(), nullable=True),
        sa.Column("to_deliver", sa.Integer(), server_default="1", nullable=False),
        sa.Column("stop_cause", sa.String(length=20), nullable=True),
        sa.Column("stop_sent", sa.Integer(), server_default="0", nullable=False),
        sa.Column("unanswered_since", sa.BigInteger(), nullable=True),
        sa.Column("stop_epoch", sa.Integer(), nullable=True),
        sa.Column("inquiry", sa.Integer(), server_default="0", nullable=False),
        sa.Column("adopted", sa.Integer(), server_default="0", nullable=False),
        sa.Column("fenced", sa.String(length=20), nullable=True),
        sa.Column("vouched", sa.Integer(), server_default="0", nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("admitted_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("settled_at", sa.BigInteger(), nullable=True),
        sa.Column("ending", sa.Text(), nullable=True),
        sa.Column("late_ending", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["key"], ["task.key"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["place"],
            ["machine.place"],
        ),
        sa.PrimaryKeyConstraint("attempt"),
    )
    op.create_index(
        "ix_claim_held",
        "claim",
        ["cluster", "attempt"],
        unique=False,
        sqlite_where=sa.text("standing <> 'released'"),
        postgresql_where=sa.text("standing <> 'released'"),
    )
    op.create_index(
        "ix_claim_place",
        "claim",
        ["place"],
        unique=False,
        sqlite_where=sa.text("standing <> 'released'"),
        postgresql_where=sa.text("standing <> 'released'"),
    )
    op.create_index("ix_claim_task", "claim", ["key", "number"], unique=False)
    op.create_index(
        "ix_claim_to_deliver",
        "claim",
        ["cluster", "claimed_at"],
        unique=False,
        sqlite_where=sa.text("to_deliver = 1"),
        postgresql_where=sa.text("to_deliver = 1"),
    )


def _story_and_totals() -> None:
    op.create_table(
        "event",
        sa.Column("key", _bytewise(300), nullable=False),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("number", sa.Integer(), server_default="0", nullable=False),
        sa.Column("detail", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["key"], ["task.key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key", "slot"),
    )
    op.create_table(
        "usage",
        sa.Column("team", _bytewise(63), nullable=False),
        sa.Column("cpu_milli", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("gpu", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("disk_mib", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("net_mbps", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("extra", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("team"),
    )
