"""The few places where SQLite and PostgreSQL differ in words."""

from collections.abc import Sequence
from functools import cache

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Table,
    cast,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite

from store.prepared import Prepared
from store.tables import MACHINE

_LAST_REVISION = Prepared(select(func.max(MACHINE.c.revision)))
_TRANSACTION_NUMBER = cast(cast(func.pg_current_xact_id(), postgresql.TEXT), BigInteger)
_TRANSACTION = Prepared(select(_TRANSACTION_NUMBER))
_NO_SCANS = Prepared(text("SET LOCAL enable_seqscan = off"))
_BY_INDEX_AT_LEAST = 100
_OLDEST_RUNNING = Prepared(
    select(
        cast(cast(func.pg_snapshot_xmin(func.pg_current_snapshot()), postgresql.TEXT), BigInteger)
    )
)


Insert = sqlite.Insert | postgresql.Insert


def upsert(connection: Connection, table: Table) -> Insert:
    """An insert that does nothing where the row exists."""
    return _upsert(connection.dialect.name, table, (), False)


def prepared_upsert(
    table: Table, columns: Sequence[str], *updated: str, adding: bool = False
) -> Prepared:
    """An insert that, where the row exists, sets (or adds to) some columns, or does nothing."""
    return Prepared(lambda dialect: _upsert(dialect, table, updated, adding), columns)


@cache
def _upsert(dialect: str, table: Table, updated: tuple[str, ...], adding: bool) -> Insert:
    fresh: Insert = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    if not updated:
        return fresh.on_conflict_do_nothing()
    given = {name: fresh.excluded[name] for name in updated}
    values = {n: table.c[n] + value if adding else value for n, value in given.items()}
    return fresh.on_conflict_do_update(index_elements=list(table.primary_key), set_=values)


def by_index(connection: Connection, rows: int) -> None:
    """For the rest of the transaction: so many keys are looked up, whatever the planner thinks.

    PostgreSQL prices a look-up like a turn of a disk, and rather reads a table of some hundred
    thousand rows from end to end than find a few thousand of them by their keys.
    """
    if rows >= _BY_INDEX_AT_LEAST and connection.dialect.name == "postgresql":
        _NO_SCANS.run(connection, {})


def next_revision(connection: Connection) -> int:
    """What this transaction stamps on every machine it changes.

    PostgreSQL: its own id, since commits land out of sequence. SQLite has one writer at a time.
    """
    if connection.dialect.name == "postgresql":
        return _number(connection, _TRANSACTION)
    return _number(connection, _LAST_REVISION) + 1


def revision_expression(dialect: str) -> ColumnElement[int]:
    """`next_revision` inside a statement; SQLite gives each row a later one than the row before."""
    if dialect == "postgresql":
        return _TRANSACTION_NUMBER
    other = MACHINE.alias()
    return select(
        func.coalesce(func.max(other.c.revision), literal_column("0")) + literal_column("1")
    ).scalar_subquery()


def reading_mark(connection: Connection) -> int:
    """Every change that this moment does not show carries this revision or a later one."""
    if connection.dialect.name == "postgresql":
        return _number(connection, _OLDEST_RUNNING)
    return _number(connection, _LAST_REVISION) + 1


def _number(connection: Connection, statement: Prepared) -> int:
    return int(statement.scalar(connection) or 0)
