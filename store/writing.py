"""Writes what a unit of work has changed: a few statements whatever the number of rows.

The order of the statements is the order of the locks (see `store.locking`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Table, bindparam, insert, select, update

from domain.resources import COLUMNS
from store.bell import ring
from store.bulk import ChangeByKey
from store.cooldowns import count_refusals
from store.dialects import prepared_upsert, revision_expression
from store.lines import ClaimLine, TaskLine
from store.locking import Work, rows_by_key
from store.mapping import extra_text
from store.prepared import Prepared, one_of
from store.room import Room
from store.tables import CLAIM, EVENT, MACHINE, TASK, USAGE
from store.transitions import NEW_CLAIM_COLUMNS

_TASK_FIXED = {"key", "team", "partition", "band", "digest", "shape", "changed"}
_TASK_NAMES = [f.name for f in fields(TaskLine) if f.name not in _TASK_FIXED]
_CLAIM_FIXED = {
    *("attempt", "key", "number", "team", "cluster", "place", "on_loss", "extra", "claimed_at"),
    "changed",
    *COLUMNS,
}
_CLAIM_NAMES = [f.name for f in fields(ClaimLine) if f.name not in _CLAIM_FIXED]
USED = tuple(f"used_{column}" for column in COLUMNS)


def _update_lines(table: Table, key: str, names: Iterable[str]) -> Prepared:
    values: dict[str, Any] = {name: bindparam(f"b_{name}") for name in names}
    return Prepared(update(table).where(table.c[key] == bindparam("b_row")).values(values))


_UPDATE_TASKS = _update_lines(TASK, "key", _TASK_NAMES)
_UPDATE_CLAIMS = _update_lines(CLAIM, "attempt", _CLAIM_NAMES)
_ADD_USED = ChangeByKey(MACHINE, "place", adds=USED, computed={"revision": revision_expression})
_ADD_USED_AT = ChangeByKey(MACHINE, "place", sets=("revision",), adds=USED)
_UPDATE_USED_EXTRA = Prepared(
    update(MACHINE)
    .where(MACHINE.c.place == bindparam("b_place"))
    .values(used_extra=bindparam("b_used_extra"))
)
_LOCK_MACHINES = Prepared(
    select(MACHINE.c.place, MACHINE.c.used_extra)
    .where(one_of(MACHINE.c.place))
    .order_by(MACHINE.c.place)
    .with_for_update(key_share=True)
)
_LOCK_USAGE = Prepared(
    select(USAGE.c.team, USAGE.c.extra)
    .where(one_of(USAGE.c.team))
    .order_by(USAGE.c.team)
    .with_for_update(key_share=True)
)
_UPDATE_USAGE_EXTRA = Prepared(
    update(USAGE).where(USAGE.c.team == bindparam("b_team")).values(extra=bindparam("b_extra"))
)
_INSERT_CLAIMS = Prepared(insert(CLAIM), NEW_CLAIM_COLUMNS)
_EVENT_COLUMNS = ("seq", "at", "kind", "number", "detail")
_PUT_EVENTS = prepared_upsert(EVENT, ("key", "slot", *_EVENT_COLUMNS), *_EVENT_COLUMNS)
_ADD_USAGE = prepared_upsert(USAGE, ("team", *COLUMNS), *COLUMNS, adding=True)


def write(work: Work) -> set[int]:
    """Write everything; the answer is the partitions whose bell the caller must ring."""
    connection = work.connection
    if work.new_claims:
        _INSERT_CLAIMS.run_many(connection, work.new_claims)
    _write_lines(connection, _UPDATE_TASKS, work.tasks, _TASK_NAMES)
    _write_lines(connection, _UPDATE_CLAIMS, work.claims, _CLAIM_NAMES)
    _write_events(work)
    write_used(work)
    write_usage(work)
    count_refusals(connection, work.refused, work.now)
    return ring(connection, work.woken, room_freed=work.room_freed, now=work.now)


def _write_lines(
    connection: Connection,
    statement: Prepared,
    lines: Mapping[str, TaskLine | ClaimLine],
    names: list[str],
) -> None:
    changed = [
        {"b_row": row, **{f"b_{name}": getattr(line, name) for name in names}}
        for row, line in sorted(lines.items())
        if line.changed
    ]
    if changed:
        statement.run_many(connection, changed)


def _write_events(work: Work) -> None:
    if not work.events:
        return
    latest = {(e["key"], e["slot"]): e for e in work.events}  # A ring may come round in one batch.
    _PUT_EVENTS.run_many(work.connection, list(latest.values()))


def write_used(work: Work, revision: int | None = None) -> None:
    """Add to the used columns of machines. `revision`: this transaction's `next_revision`, where
    the caller knows it and holds the rows already."""
    used = {place: room for place, room in sorted(work.used.items()) if not room.is_nothing()}
    if not used:
        return
    connection = work.connection
    with_extra = {place: room for place, room in used.items() if room.extra}
    # One statement changes its rows in an order of its own; so they are locked first, in ours.
    # And sums of the named extras are read, added up here and written.
    ordered = revision is not None or len(used) == 1 or connection.dialect.name == "sqlite"
    lock = bool(with_extra) or not ordered
    before = dict(rows_by_key(connection, _LOCK_MACHINES, used)) if lock else {}
    if revision is None or connection.dialect.name == "postgresql":
        _ADD_USED.run(connection, [(*room.vector, place) for place, room in used.items()])
    else:
        rows = [(revision, *room.vector, place) for place, room in used.items()]
        _ADD_USED_AT.run(connection, rows)
    if with_extra:
        after = {place: _sum_text(before[place], room) for place, room in with_extra.items()}
        changes = [{"b_place": place, "b_used_extra": text} for place, text in after.items()]
        _UPDATE_USED_EXTRA.run_many(connection, changes)


def write_usage(work: Work) -> None:
    """Add to what teams are charged."""
    charged = {team: room for team, room in sorted(work.charged.items()) if not room.is_nothing()}
    if not charged:
        return
    connection = work.connection
    rows = [
        {"team": team, **dict(zip(COLUMNS, room.vector, strict=True))}
        for team, room in charged.items()
    ]
    _ADD_USAGE.run_many(connection, rows)
    with_extra = {team: room for team, room in charged.items() if room.extra}
    if with_extra:
        # The rows are this transaction's by now: the statement above has locked them.
        before = dict(rows_by_key(connection, _LOCK_USAGE, with_extra))
        after = {team: _sum_text(before[team], room) for team, room in with_extra.items()}
        changes = [{"b_team": team, "b_extra": text} for team, text in after.items()]
        _UPDATE_USAGE_EXTRA.run_many(connection, changes)


def _sum_text(before: str | None, change: Room) -> str | None:
    total = Room.of_row((0, 0, 0, 0, 0), before)
    total.add(Room(extra=change.extra))
    return extra_text(total.amounts())
