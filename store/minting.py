"""Tasks become offers: the number rises, the claim is made, the story goes on; all in one go.

For rows that are locked, still wait and have been given room: whether they have is the business of
`store.claims`.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Insert,
    Select,
    Text,
    bindparam,
    cast,
    func,
    insert,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from domain.attempt import Phase
from domain.resources import COLUMNS
from domain.views import EventKind
from store.bulk import ChangeByKey
from store.lines import OfferState, Standing
from store.prepared import KEYS, Prepared, one_of
from store.tables import CLAIM, CLUSTER, EVENT, TASK
from store.transitions import EVENTS_KEPT_MAX

Won = tuple[str, str, int, str]
"""Cluster, machine, the instant, and the task's key."""

_TAKEN_OVER = ("team", "cluster", "on_loss", "grace_s", "neighbour", *COLUMNS, "extra")
_EVENT_COLUMNS = ("seq", "at", "kind", "number", "detail")
_RISES: dict[str, ColumnElement[Any]] = {
    "phase": literal_column(f"'{Phase.OFFERED.value}'"),
    "number": literal_column("task.number + 1"),
    "events": literal_column("task.events + 1"),
}


def mint_many(connection: Connection, won: Sequence[Won]) -> None:
    """Claim the machines for these tasks, each with its next number: one never used before.

    The cluster's epoch goes into the claim; its row must be locked, so that it is still the one
    that was looked at.
    """
    if connection.dialect.name == "postgresql":
        clusters, machines, instants, keys = map(list, zip(*won, strict=True))
        given = {"b_cluster": clusters, "b_machine": machines, "b_key": keys}
        _ALL_IN_ONE.run(connection, {**given, "b_now": instants[0]})
        return
    _MOVE.run(connection, won)
    keys = [key for _, _, _, key in won]
    _CLAIM_MOVED.run(connection, {KEYS: keys})
    _TELL_MOVED.run(connection, {KEYS: keys})


def _claims(of: FromClause) -> tuple[list[str], Select[Any]]:
    """What stands in the claims of tasks just moved."""
    task = of.c
    epoch = select(CLUSTER.c.epoch).where(CLUSTER.c.name == task.cluster).scalar_subquery()
    values: dict[str, ColumnElement[Any]] = {
        "attempt": task.key + literal_column("'#'") + cast(task.number, Text),
        "key": task.key,
        "number": task.number,
        "place": _place(of),
        "epoch": epoch,
        "standing": literal(Standing.OPEN.value),
        "state": literal(OfferState.OFFERED.value),
        "claimed_at": task.updated_at,
        **{name: task[name] for name in _TAKEN_OVER},
    }
    return list(values), select(*(value.label(name) for name, value in values.items()))


def _events(of: FromClause) -> tuple[list[str], Select[Any]]:
    """What is told of tasks just moved."""
    task = of.c
    seq = task.events - 1
    values: dict[str, ColumnElement[Any]] = {
        "key": task.key,
        "slot": seq % EVENTS_KEPT_MAX,
        "seq": seq,
        "at": task.updated_at,
        "kind": literal(EventKind.PLACED.value),
        "number": task.number,
        "detail": _place(of),
    }
    return list(values), select(*(value.label(name) for name, value in values.items()))


def _place(of: FromClause) -> ColumnElement[str]:
    return of.c.cluster + literal_column("'/'") + of.c.machine


def _all_in_one() -> Insert:
    """PostgreSQL: the three changes are one statement, and the rows travel once."""
    names = ("cluster", "machine", "key")
    arrays = [cast(bindparam(f"b_{name}"), postgresql.ARRAY(Text)) for name in names]
    given = func.unnest(*arrays).table_valued(*names, name="given").render_derived()
    moved = (
        update(TASK)
        .where(TASK.c.key == given.c.key)
        .values(
            **_RISES,
            cluster=given.c.cluster,
            machine=given.c.machine,
            updated_at=bindparam("b_now"),
        )
        .returning(*(TASK.c[n] for n in ("key", "number", "machine", "updated_at", "events")))
        .returning(*(TASK.c[n] for n in _TAKEN_OVER))
        .cte("moved")
    )
    claimed = insert(CLAIM).from_select(*_claims(moved), include_defaults=False).cte("claimed")
    told = postgresql.insert(EVENT).from_select(*_events(moved), include_defaults=False)
    changes = {name: told.excluded[name] for name in _EVENT_COLUMNS}
    return told.on_conflict_do_update(index_elements=["key", "slot"], set_=changes).add_cte(claimed)


def _tell_moved() -> Insert:
    names, chosen = _events(TASK)
    told = sqlite.insert(EVENT).from_select(names, chosen.where(one_of(TASK.c.key)))
    changes = {name: told.excluded[name] for name in _EVENT_COLUMNS}
    return told.on_conflict_do_update(index_elements=["key", "slot"], set_=changes)


def _claim_moved() -> Insert:
    names, chosen = _claims(TASK)
    chosen = chosen.where(one_of(TASK.c.key))
    return insert(CLAIM).from_select(names, chosen, include_defaults=False)


_ALL_IN_ONE = Prepared(_all_in_one())
_MOVE = ChangeByKey(
    TASK,
    "key",
    sets=("cluster", "machine", "updated_at"),
    computed={name: lambda _, value=value: value for name, value in _RISES.items()},  # type: ignore[misc]
)
_CLAIM_MOVED = Prepared(_claim_moved())
_TELL_MOVED = Prepared(_tell_moved())
