"""Engines by URL, and the one way to open a transaction. Knows no table.

SQLite: WAL, one writer at a time (BEGIN IMMEDIATE), readers beside it. In memory: one connection,
for one thread. PostgreSQL: READ COMMITTED; the order of locks stands in `store.locking`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool
from sqlmodel import SQLModel

import store.tables  # noqa: F401  (the metadata is complete only once the tables are known)

BUSY_MS_MAX = 5_000
LOCK_MS_MAX = 5_000
CONNECT_S_MAX = 5
CONNECTIONS_MAX = 20
STATEMENTS_CACHED = 512
_READING = "drystone_reading"


def open_engine(url: str) -> Engine:
    """An engine for a SQLite or PostgreSQL URL; nothing is connected yet."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed)
    if parsed.get_backend_name() != "postgresql":
        raise ValueError(f"the ledger runs on sqlite or postgresql, not {parsed.drivername}")
    return create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_size=5,
        max_overflow=CONNECTIONS_MAX - 5,
        connect_args={
            "connect_timeout": CONNECT_S_MAX,
            # No statement here runs long enough to be worth compiling.
            "options": f"-c lock_timeout={LOCK_MS_MAX} -c timezone=UTC -c jit=off",
        },
    )


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One writing transaction: all of it, or, when an exception leaves it, nothing."""
    with engine.begin() as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One reading transaction; on SQLite it never waits for the writer, nor the writer for it."""
    with (
        engine.connect().execution_options(**{_READING: True}) as connection,
        connection.begin(),
    ):
        yield connection


def create_schema(engine: Engine) -> None:
    """The tables of an empty database without the migrations: for simulations."""
    with transaction(engine) as connection:
        SQLModel.metadata.create_all(connection)


def _sqlite(url: URL) -> Engine:
    options: dict[str, Any] = {
        "connect_args": {"check_same_thread": False, "cached_statements": STATEMENTS_CACHED}
    }
    if _in_memory(url):
        options["poolclass"] = StaticPool
    else:
        assert url.database is not None
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        options |= {"pool_size": 5, "max_overflow": CONNECTIONS_MAX - 5}
    engine = create_engine(url, **options)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _in_memory(url: URL) -> bool:
    return url.database in (None, "", ":memory:") or url.query.get("mode") == "memory"


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # The driver must not begin by itself: see _begin_sqlite.
    for pragma in (
        f"busy_timeout = {BUSY_MS_MAX}",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
        "temp_store = MEMORY",
        "cache_size = -65536",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that reads first and writes later fails at once when another has
    # written meanwhile, without waiting; so whoever may write says so at the start.
    reads = connection.get_execution_options().get(_READING, False)
    _say(connection, "BEGIN" if reads else "BEGIN IMMEDIATE")


def _say(connection: Connection, statement: str) -> None:
    """Past SQLAlchemy, whose preparations for one word cost several times the word."""
    driver: Any = connection.connection.dbapi_connection
    try:
        driver.execute(statement)
    except connection.dialect.loaded_dbapi.Error as error:
        raise translated(connection, statement, error) from error


def translated(connection: Connection, sql: str, error: Exception) -> BaseException:
    """A driver's error as SQLAlchemy would have raised it."""
    dialect = connection.dialect
    return DBAPIError.instance(sql, None, error, dialect.loaded_dbapi.Error, dialect=dialect)
