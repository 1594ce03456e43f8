"""What a claim takes over stands with the task; PostgreSQL no longer checks the keys of claims."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_ROWS_AT_ONCE = 1_000
_QUANTITIES = ("cpu_milli", "memory_mib", "gpu", "disk_mib", "net_mbps")
_ADDED = ("on_loss", "grace_s", "neighbour", *_QUANTITIES, "extra")


def upgrade() -> None:
    columns: list[sa.Column[Any]] = [
        sa.Column("on_loss", sa.String(20), server_default="replace_after_fence", nullable=False),
        sa.Column("grace_s", sa.Integer(), server_default="30", nullable=False),
        sa.Column("neighbour", sa.Text(), nullable=True),
        *(sa.Column(n, sa.BigInteger(), server_default="0", nullable=False) for n in _QUANTITIES),
        sa.Column("extra", sa.Text(), nullable=True),
    ]
    for column in columns:
        op.add_column("task", column)
    _fill()
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("claim_key_fkey", "claim", type_="foreignkey")
        op.drop_constraint("claim_place_fkey", "claim", type_="foreignkey")
        op.drop_constraint("event_key_fkey", "event", type_="foreignkey")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_foreign_key(
            "claim_key_fkey", "claim", "task", ["key"], ["key"], ondelete="CASCADE"
        )
        op.create_foreign_key("claim_place_fkey", "claim", "machine", ["place"], ["place"])
        op.create_foreign_key(
            "event_key_fkey", "event", "task", ["key"], ["key"], ondelete="CASCADE"
        )
    for column in reversed(_ADDED):
        op.drop_column("task", column)


def _fill() -> None:
    """From the specifications of the tasks that are there."""
    bind = op.get_bind()
    some = sa.text("SELECT key, body FROM task_spec WHERE key > :last ORDER BY key LIMIT :rows")
    task = sa.table("task", sa.column("key"), *(sa.column(name) for name in _ADDED))
    values: dict[str, Any] = {name: sa.bindparam(f"b_{name}") for name in _ADDED}
    put = sa.update(task).where(task.c.key == sa.bindparam("b_key")).values(values)
    last = ""
    while rows := bind.execute(some, {"last": last, "rows": _ROWS_AT_ONCE}).all():
        bind.execute(put, [{"b_key": key, **_taken_over(json.loads(body))} for key, body in rows])
        last = rows[-1][0]


def _taken_over(body: dict[str, Any]) -> dict[str, Any]:
    resources, rules = body["resources"], body["constraints"]
    service, shunned = rules["service"], sorted(set(rules["anti_affinity"]))
    bound = service is not None or shunned
    taken = {
        "on_loss": body["on_loss"],
        "grace_s": body["grace_s"],
        "neighbour": json.dumps([body["team"], service, shunned]) if bound else None,
        **{name: resources[name] for name in _QUANTITIES},
        "extra": json.dumps(resources["extra"], sort_keys=True) if resources["extra"] else None,
    }
    return {f"b_{name}": value for name, value in taken.items()}
