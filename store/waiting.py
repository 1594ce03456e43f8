"""Rows that wait: which are due, which are overdue, and when the next one is. Reads only."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, select

from domain.fleet import PendingTask
from domain.priority import Band
from domain.task import TaskSpec
from store.cooldowns import next_end
from store.mapping import instant, micros, read_spec
from store.prepared import KEYS, Prepared, one_of
from store.tables import PENDING, SPEC, TASK

_MINE = TASK.c.partition == bindparam("partition")
_DUE = (
    select(
        *(TASK.c.key, TASK.c.team, TASK.c.band, TASK.c.enqueued_at, TASK.c.number, TASK.c.shape),
        SPEC.c.body,
    )
    .join(SPEC, SPEC.c.key == TASK.c.key)
    .where(_MINE)
    .where(PENDING)
    # The sum keeps the planner from the index by instant: it would sort the whole queue each time.
    .where(TASK.c.not_before + 0 <= bindparam("now"))
    .order_by(TASK.c.band, TASK.c.enqueued_at, TASK.c.key)
    .limit(bindparam("limit"))
)
_DUE_WITHOUT = _DUE.where(TASK.c.shape.not_in(bindparam("without", expanding=True)))
_DUE_NOW = Prepared(_DUE)
_OVERDUE = Prepared(
    select(TASK.c.key)
    .where(_MINE)
    .where(PENDING)
    .where(TASK.c.not_after.is_not(None))
    .where(TASK.c.not_after <= bindparam("now"))
    .order_by(TASK.c.not_after)
    .limit(bindparam("limit"))
)
_NEXT_START = Prepared(
    select(func.min(TASK.c.not_before))
    .where(_MINE)
    .where(PENDING)
    .where(TASK.c.not_before > bindparam("now"))
)
_NEXT_END = Prepared(
    select(func.min(TASK.c.not_after))
    .where(_MINE)
    .where(PENDING)
    .where(TASK.c.not_after.is_not(None))
    .where(TASK.c.not_after > bindparam("now"))
)
_WAITING = Prepared(select(func.count()).select_from(TASK).where(_MINE).where(PENDING))
_SPECS = Prepared(select(SPEC.c.key, SPEC.c.body).where(one_of(SPEC.c.key)))


def pending(
    connection: Connection,
    partition: int,
    now: datetime,
    limit: int,
    without: Collection[str] = (),
) -> list[PendingTask]:
    """Rows that may have a machine now, the more important first, then the older.

    Rows of the shapes in `without` are left out.
    """
    asked: dict[str, object] = {"partition": partition, "now": micros(now), "limit": limit}
    if without:
        asked["without"] = sorted(without)
    rows = connection.execute(_DUE_WITHOUT, asked) if without else _DUE_NOW.rows(connection, asked)
    return [
        PendingTask(
            key=row.key,
            team=row.team,
            band=Band(row.band),
            enqueued_at=instant(row.enqueued_at),
            number=row.number,
            shape=row.shape,
            spec=read_spec(row.body),
        )
        for row in rows
    ]


def expired(connection: Connection, partition: int, now: datetime, limit: int = 100) -> list[str]:
    """Keys of waiting rows past their `not_after`: their workflows are to be told."""
    asked = {"partition": partition, "now": micros(now), "limit": limit}
    return [row.key for row in _OVERDUE.rows(connection, asked)]


def next_due(connection: Connection, partition: int, now: datetime) -> datetime | None:
    """The first instant after `now` at which time alone changes something for a waiting row.

    Give it the instant with which the last round read: what fell due since is then not forgotten.
    """
    asked = {"partition": partition, "now": micros(now)}
    instants = [_NEXT_START.scalar(connection, asked), _NEXT_END.scalar(connection, asked)]
    if waiting_count(connection, partition):
        instants.append(next_end(connection, now))
    known = [at for at in instants if at is not None]
    return instant(min(known)) if known else None


def waiting_count(connection: Connection, partition: int) -> int:
    """How many rows wait, due or not."""
    return int(_WAITING.scalar(connection, {"partition": partition}) or 0)


def specs(connection: Connection, keys: Sequence[str]) -> dict[str, TaskSpec]:
    """What these tasks asked for."""
    if not keys:
        return {}
    rows = _SPECS.rows(connection, {KEYS: sorted(keys)})
    return {row.key: read_spec(row.body) for row in rows}
