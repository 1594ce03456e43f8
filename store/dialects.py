"""The few places where SQLite and PostgreSQL differ in words."""

from typing import Any

from sqlalchemy import BigInteger, Connection, Table, cast, func, select
from sqlalchemy.dialects import postgresql, sqlite

from store.tables import MACHINE

_LAST_REVISION = select(func.max(MACHINE.c.revision))
_TRANSACTION = select(cast(cast(func.pg_current_xact_id(), postgresql.TEXT), BigInteger))
_OLDEST_RUNNING = select(
    cast(cast(func.pg_snapshot_xmin(func.pg_current_snapshot()), postgresql.TEXT), BigInteger)
)


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An insert of the database's own kind, which can say what to do about a conflict."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def next_revision(connection: Connection) -> int:
    """What this transaction stamps on every machine it changes.

    PostgreSQL: its own id, since commits land out of sequence. SQLite has one writer at a time.
    """
    if connection.dialect.name == "postgresql":
        return _number(connection, _TRANSACTION)
    return _number(connection, _LAST_REVISION) + 1


def reading_mark(connection: Connection) -> int:
    """Every change that this moment does not show carries this revision or a later one."""
    if connection.dialect.name == "postgresql":
        return _number(connection, _OLDEST_RUNNING)
    return _number(connection, _LAST_REVISION) + 1


def _number(connection: Connection, statement: Any) -> int:
    return int(connection.scalar(statement) or 0)
