"""What the auditor finds, which machines it doubts, and what operators have said."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def _bytewise(length: int) -> sa.String:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("cluster", sa.Column("machines_braked_since", sa.BigInteger(), nullable=True))
    op.create_table(
        "doubtful_machine",
        sa.Column("place", _bytewise(130), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("place"),
    )
    op.create_index("ix_doubtful_machine", "doubtful_machine", ["cluster", "since"])
    _differences()
    op.create_table(
        "operator_act",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("act", sa.String(length=20), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )


def _differences() -> None:
    op.create_table(
        "difference",
        sa.Column("fault", _bytewise(40), nullable=False),
        sa.Column("subject", _bytewise(320), nullable=False),
        sa.Column("place", sa.String(length=130), server_default="", nullable=False),
        sa.Column("standing", sa.String(length=8), nullable=False),
        sa.Column("expected", sa.Text(), nullable=False),
        sa.Column("found", sa.Text(), nullable=False),
        sa.Column("healing", sa.Text(), server_default="", nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.BigInteger(), nullable=False),
        sa.Column("healed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("fault", "subject"),
    )
    op.create_index("ix_difference_standing", "difference", ["standing", "last_seen"])
    op.create_table(
        "audit_count",
        sa.Column("fault", _bytewise(40), nullable=False),
        sa.Column("found", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("healed", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("fault"),
    )
    op.create_table(
        "audit_run",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("looked_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("machines_asked", sa.Integer(), server_default="0", nullable=False),
        sa.Column("clusters_unheard", sa.Integer(), server_default="0", nullable=False),
        sa.Column("after_task", sa.String(length=300), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def downgrade() -> None:
    for table in ("operator_act", "audit_run", "audit_count", "difference", "doubtful_machine"):
        op.drop_table(table)
    op.drop_column("cluster", "machines_braked_since")
