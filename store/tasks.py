"""Tasks as readers see them: one, a page of many, attempts, events."""

import base64
import binascii
import json
from typing import Any

from sqlalchemy import Connection, Select, select, tuple_

from domain.attempt import Phase, StopCause
from domain.errors import InvalidError
from domain.ids import split_task_key
from domain.views import AttemptView, EventKind, EventView, TaskPage, TaskView
from store.lines import Standing
from store.mapping import (
    instant,
    instant_or_none,
    micros,
    read_ending,
    read_outcome,
    read_spec,
    split_place,
)
from store.tables import CLAIM, EVENT, SPEC, TASK
from store.verdicts import read_verdicts

PAGE_MAX = 1_000
ATTEMPTS_MAX = 1_000
CURSOR_CHARS_MAX = 1_000

_TASKS = select(TASK, SPEC.c.body).join(SPEC, SPEC.c.key == TASK.c.key)


def task(connection: Connection, key: str) -> TaskView | None:
    """One task; None when there is no row."""
    row = connection.execute(_TASKS.where(TASK.c.key == key)).one_or_none()
    return None if row is None else _view(row)


def tasks(
    connection: Connection,
    *,
    team: str | None = None,
    phase: Phase | None = None,
    cluster: str | None = None,
    priority: int | None = None,
    service: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> TaskPage:
    """A page, the newest first. A cursor stays good whatever happens to the tasks meanwhile."""
    assert 1 <= limit <= PAGE_MAX, limit
    wanted = {"team": team, "phase": phase, "cluster": cluster, "band": priority}
    statement: Select[Any] = _TASKS
    for column, value in {**wanted, "service": service}.items():
        if value is not None:
            statement = statement.where(TASK.c[column] == value)
    if cursor is not None:
        statement = statement.where(tuple_(TASK.c.enqueued_at, TASK.c.key) < _read_cursor(cursor))
    newest_first = (TASK.c.enqueued_at.desc(), TASK.c.key.desc())
    rows = connection.execute(statement.order_by(*newest_first).limit(limit + 1)).all()
    items = rows[:limit]
    more = len(rows) > limit
    return TaskPage(
        items=tuple(_view(row) for row in items),
        cursor=_cursor(items[-1].enqueued_at, items[-1].key) if more else None,
    )


def attempts(connection: Connection, key: str) -> tuple[AttemptView, ...]:
    """The latest attempts of a task, the first one first."""
    mine = select(CLAIM).where(CLAIM.c.key == key)
    rows = connection.execute(mine.order_by(CLAIM.c.number.desc()).limit(ATTEMPTS_MAX)).all()
    return tuple(_attempt(row) for row in reversed(rows))


def events(connection: Connection, key: str) -> tuple[EventView, ...]:
    """The newest transitions of a task, in the order in which they were heard of."""
    rows = connection.execute(select(EVENT).where(EVENT.c.key == key).order_by(EVENT.c.seq))
    return tuple(
        EventView(
            seq=row.seq,
            at=instant(row.at),
            kind=EventKind(row.kind),
            number=row.number,
            detail=row.detail,
        )
        for row in rows
    )


def _view(row: Any) -> TaskView:
    team, task_id = split_task_key(row.key)
    verdicts = read_verdicts(row.verdict) if row.phase == Phase.PENDING else ()
    # A verdict of an earlier wait says nothing of this one.
    latest = verdicts[-1] if verdicts and micros(verdicts[-1].at) >= row.pending_since else None
    return TaskView(
        key=row.key,
        team=team,
        id=task_id,
        phase=Phase(row.phase),
        spec=read_spec(row.body),
        digest=row.digest,
        number=row.number,
        cluster=row.cluster,
        machine=row.machine,
        outcome=read_outcome(row.outcome),
        verdict=latest,
        enqueued_at=instant(row.enqueued_at),
        pending_since=instant(row.pending_since),
        not_before=instant(row.not_before),
        not_after=instant_or_none(row.not_after),
        updated_at=instant(row.updated_at),
        ended_at=instant_or_none(row.ended_at),
    )


def _attempt(row: Any) -> AttemptView:
    cluster, machine = split_place(row.place)
    return AttemptView(
        number=row.number,
        cluster=cluster,
        machine=machine,
        placed_at=instant(row.claimed_at),
        admitted_at=instant_or_none(row.admitted_at),
        started_at=instant_or_none(row.started_at),
        ended_at=instant_or_none(row.ended_at),
        ending=read_ending(row.ending),
        stop_cause=None if row.stop_cause is None else StopCause(row.stop_cause),
        closed=row.standing != Standing.OPEN,
        holds_room=row.standing == Standing.OPEN
        or (row.standing == Standing.REMNANT and not row.vouched),
        late_ending=read_ending(row.late_ending),
    )


def _cursor(enqueued_at: int, key: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([enqueued_at, key]).encode()).decode()


def _read_cursor(cursor: str) -> tuple[int, str]:
    try:
        if len(cursor) > CURSOR_CHARS_MAX:
            raise ValueError(len(cursor))
        at, key = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
        if not isinstance(at, int) or not isinstance(key, str) or abs(at) >= 2**63:
            raise ValueError(at)
    except (ValueError, binascii.Error, TypeError):
        raise InvalidError("cursor: is not one that a list has answered with") from None
    return at, key
