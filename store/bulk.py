"""Many rows of one table changed by their keys in one go. Knows no rule of the ledger.

SQLite: one statement, carried out for each row inside the driver. PostgreSQL: the rows travel as
one array for each column, since it answers every statement with a message of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Table,
    Text,
    Update,
    bindparam,
    cast,
    func,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from store.prepared import Prepared

Computed = Mapping[str, Callable[[str], ColumnElement[Any]]]
"""Columns whose value is an expression of the database's own, made for a dialect."""


class ChangeByKey:
    """An update by one key column: columns that are set, and columns that are added to."""

    def __init__(
        self,
        table: Table,
        key: str,
        *,
        sets: Sequence[str] = (),
        adds: Sequence[str] = (),
        computed: Computed | None = None,
    ) -> None:
        self._table, self._key = table, key
        self._sets, self._adds = tuple(sets), tuple(adds)
        self._computed = dict(computed or {})
        self._names = (*self._sets, *self._adds, key)
        self._statement = Prepared(self._made)

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Change them; a row is the values to set, then those to add, then the key."""
        if not rows:
            return
        if connection.dialect.name == "postgresql":
            columns = [list(column) for column in zip(*rows, strict=True)]
            arrays = dict(zip(map(_given, self._names), columns, strict=True))
            self._statement.run(connection, arrays)
        else:
            self._statement.run_rows(connection, rows)

    def _made(self, dialect: str) -> Update:
        table, key = self._table, self._key
        given = self._arrays() if dialect == "postgresql" else self._single()
        changed: list[tuple[ColumnElement[Any], ColumnElement[Any]]] = [
            *((table.c[name], given[name]) for name in self._sets),
            *((table.c[name], table.c[name] + given[name]) for name in self._adds),
            *((table.c[name], make(dialect)) for name, make in self._computed.items()),
        ]
        return update(table).where(table.c[key] == given[key]).ordered_values(*changed)

    def _single(self) -> dict[str, ColumnElement[Any]]:
        return {name: bindparam(_given(name)) for name in self._names}

    def _arrays(self) -> dict[str, ColumnElement[Any]]:
        arrays = [
            cast(bindparam(_given(name)), ARRAY(_kind(self._table, name))) for name in self._names
        ]
        given = func.unnest(*arrays).table_valued(*self._names, name="given").render_derived()
        return {name: given.c[name] for name in self._names}


def _given(name: str) -> str:
    return f"b_{name}"


def _kind(table: Table, name: str) -> type[BigInteger] | type[Text]:
    """Widest of its kind: a text without a collation of its own takes that of the column."""
    return BigInteger if isinstance(table.c[name].type, Integer) else Text
