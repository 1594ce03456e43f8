"""Rows that wait: which are due, which are overdue, and when the next one is. Reads only."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, exists, func, select

from domain.fleet import PendingTask
from domain.priority import Band
from domain.task import TaskSpec
from store.mapping import instant, micros, read_spec
from store.prepared import KEYS, Prepared, one_of
from store.tables import COOLDOWN, PENDING, SPEC, TASK

SPECS_KEPT_MAX = 20_000
_BANDS = {int(band): band for band in Band}

_MINE = TASK.c.partition == bindparam("partition")
_DUE = (
    select(TASK.c.key, TASK.c.team, TASK.c.band, TASK.c.enqueued_at, TASK.c.number, TASK.c.shape)
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
_NEXT_START = (
    select(func.min(TASK.c.not_before))
    .where(_MINE)
    .where(PENDING)
    .where(TASK.c.not_before > bindparam("now"))
)
_NEXT_END = (
    select(func.min(TASK.c.not_after))
    .where(_MINE)
    .where(PENDING)
    .where(TASK.c.not_after.is_not(None))
    .where(TASK.c.not_after > bindparam("now"))
)
# A cool-down that ends is of interest only to those who wait.
_COOL_END = (
    select(func.min(COOLDOWN.c.until))
    .where(COOLDOWN.c.until > bindparam("now"))
    .where(exists().where(_MINE).where(PENDING))
)
_NEXT = Prepared(
    select(
        _NEXT_START.scalar_subquery().label("start"),
        _NEXT_END.scalar_subquery().label("end"),
        _COOL_END.scalar_subquery().label("cool"),
    )
)
_WAITING = Prepared(select(func.count()).select_from(TASK).where(_MINE).where(PENDING))
_SPECS = Prepared(select(SPEC.c.key, SPEC.c.body).where(one_of(SPEC.c.key)))


class ShapeSpecs:
    """One specification of each team and shape, for placement sees no more of a task than that.

    Bounded: when it is full it begins anew.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], TaskSpec] = {}

    def of(self, connection: Connection, rows: Sequence[Any]) -> dict[tuple[str, str], TaskSpec]:
        """By team and shape, at least those of these rows (columns as `_DUE` has them)."""
        missing: dict[tuple[str, str], str] = {}
        for key, team, _, _, _, shape in rows:
            if (team, shape) not in self._known:
                missing.setdefault((team, shape), key)
        if missing:
            if len(self._known) + len(missing) > SPECS_KEPT_MAX:
                self._known = {}
                missing = {(team, shape): key for key, team, _, _, _, shape in rows}
            found = _SPECS.rows(connection, {KEYS: sorted(missing.values())})
            bodies = {row.key: row.body for row in found}
            self._known |= {kind: read_spec(bodies[key]) for kind, key in missing.items()}
        return self._known


def pending(
    connection: Connection,
    partition: int,
    now: datetime,
    limit: int,
    without: Collection[str] = (),
    specs: ShapeSpecs | None = None,
) -> list[PendingTask]:
    """Rows that may have a machine now, the more important first, then the older.

    Rows of the shapes in `without` are left out. What `specs` knows is not read again.
    """
    asked: dict[str, object] = {"partition": partition, "now": micros(now), "limit": limit}
    if without:
        asked["without"] = sorted(without)
        rows: Sequence[Any] = connection.execute(_DUE_WITHOUT, asked).all()
    else:
        rows = _DUE_NOW.tuples(connection, asked)
    known = (specs or ShapeSpecs()).of(connection, rows)
    return [
        PendingTask(key, team, _BANDS[band], instant(at), number, shape, known[team, shape])
        for key, team, band, at, number, shape in rows
    ]


def expired(connection: Connection, partition: int, now: datetime, limit: int = 100) -> list[str]:
    """Keys of waiting rows past their `not_after`: their workflows are to be told."""
    asked = {"partition": partition, "now": micros(now), "limit": limit}
    return [row.key for row in _OVERDUE.rows(connection, asked)]


def next_due(connection: Connection, partition: int, now: datetime) -> datetime | None:
    """The first instant after `now` at which time alone changes something for a waiting row.

    Give it the instant with which the last round read: what fell due since is then not forgotten.
    """
    (row,) = _NEXT.rows(connection, {"partition": partition, "now": micros(now)})
    known = [at for at in row if at is not None]
    return instant(min(known)) if known else None


def waiting_count(connection: Connection, partition: int) -> int:
    """How many rows wait, due or not."""
    return int(_WAITING.scalar(connection, {"partition": partition}) or 0)
