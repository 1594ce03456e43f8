"""Clusters that are being emptied as a whole, machines that join them later included."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    name = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")
    op.create_table(
        "cluster_drain",
        sa.Column("cluster", name, nullable=False),
        sa.Column("by", sa.String(), server_default="", nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("cluster"),
    )


def downgrade() -> None:
    op.drop_table("cluster_drain")
