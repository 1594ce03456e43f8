"""Machines that are being emptied: by whom, until when, and what stands in the way."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    place = sa.String(130).with_variant(sa.String(130, collation="C"), "postgresql")
    op.create_table(
        "drain",
        sa.Column("place", place, nullable=False),
        sa.Column("cluster", sa.String(63), nullable=False),
        sa.Column("by", sa.String(), server_default="", nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline", sa.BigInteger(), nullable=True),
        sa.Column("looked_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cordoned_before", sa.Integer(), server_default="0", nullable=False),
        sa.Column("blocked", sa.Text(), server_default="[]", nullable=False),
        sa.PrimaryKeyConstraint("place"),
    )
    op.create_index("ix_drain_due", "drain", ["cluster", "looked_at"])


def downgrade() -> None:
    op.drop_table("drain")
