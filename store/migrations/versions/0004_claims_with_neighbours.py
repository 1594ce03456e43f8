"""The claims that rules between tasks look at are found by their machine, the others unread."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_WHERE = "standing <> 'released' AND neighbour IS NOT NULL"


def upgrade() -> None:
    op.create_index(
        "ix_claim_beside",
        "claim",
        ["place"],
        sqlite_where=sa.text(_WHERE),
        postgresql_where=sa.text(_WHERE),
    )


def downgrade() -> None:
    op.drop_index("ix_claim_beside", table_name="claim")
