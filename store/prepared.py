"""Statements compiled once for each database and run on the driver's own cursor.

The ledger runs some forty small statements in the life of a task; made anew by SQLAlchemy each
time, their making costs several times what the database needs for them.
"""

import json
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Connection, bindparam
from sqlalchemy.ext.compiler import compiles

from store.session import translated

PIECE_ROWS_MAX = 256
"""Fewer than what makes the garbage collector look for more."""
KEYS = "keys"
"""The parameter of `one_of`: a sequence of texts or numbers."""

Params = Mapping[str, Any]


class one_of(ColumnElement[bool]):  # noqa: N801 - it reads as an operator
    """The column is one of the parameter `keys`: one text of SQL for any number of them."""

    type = Boolean()
    inherit_cache = False
    _is_implicitly_boolean = True

    def __init__(self, column: ColumnElement[Any]) -> None:
        self.column = column
        self.keys: ColumnElement[Any] = bindparam(KEYS)


@compiles(one_of, "sqlite")
def _one_of_sqlite(element: one_of, compiler: Any, **given: Any) -> str:
    keys = compiler.process(element.keys, **given)
    column = compiler.process(element.column, **given)
    return f"{column} IN (SELECT value FROM json_each({keys}))"  # noqa: S608 - of our own making


@compiles(one_of, "postgresql")
def _one_of_postgresql(element: one_of, compiler: Any, **given: Any) -> str:
    keys = compiler.process(element.keys, **given)
    column = compiler.process(element.column, **given)
    return f"{column} = ANY({keys})"


def array_text(values: Sequence[Any]) -> str:
    """An array of PostgreSQL as it is written: many times faster made here than by the driver,
    which asks each element for its kind. Whole numbers, texts and None.
    """
    if all(type(value) is int for value in values):
        return "{" + ",".join(map(str, values)) + "}"
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert value is None or type(value) is int, value
    return "NULL" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class _Compiled:
    sql: str
    fixed: Params
    """Values that stand in the statement itself."""
    order: tuple[str, ...] | None
    """Names of the parameters by position, where the driver wants them so."""
    row: Callable[[Iterable[Any]], Any] | None

    def params(self, given: Params) -> Any:
        values = {**self.fixed, **given}
        if self.order is None:
            return {
                name: array_text(value) if isinstance(value, list | tuple) else value
                for name, value in values.items()
            }
        if KEYS in given:
            values[KEYS] = json.dumps(list(given[KEYS]))
        return tuple([values[name] for name in self.order])


class Prepared:
    """One statement. Its rows are named tuples; types are those of the driver."""

    def __init__(self, statement: Any, columns: Sequence[str] | None = None) -> None:
        """`columns`: of an insert that does not name its values itself."""
        self._statement = statement
        self._columns = columns
        self._compiled: dict[str, _Compiled] = {}

    def rows(self, connection: Connection, params: Params | None = None) -> list[Any]:
        """Every row of the answer."""
        compiled = self._for(connection)
        cursor = self._execute(connection, compiled, params or {})
        assert compiled.row is not None
        found = [compiled.row(values) for values in cursor.fetchall()]
        cursor.close()
        return found

    def tuples(self, connection: Connection, params: Params | None = None) -> list[Any]:
        """Every row as the driver has it: for many rows that are taken apart at once."""
        cursor = self._execute(connection, self._for(connection), params or {})
        found: list[Any] = cursor.fetchall()
        cursor.close()
        return found

    def pieces(
        self, connection: Connection, params: Params | None = None
    ) -> Iterator[Iterable[Sequence[Any]]]:
        """The answer by columns, some rows at a time: for very many rows that are taken apart at
        once, as only a few of them are ever in memory."""
        cursor = self._execute(connection, self._for(connection), params or {})
        while rows := cursor.fetchmany(PIECE_ROWS_MAX):
            yield zip(*rows, strict=True)
        cursor.close()

    def scalar(self, connection: Connection, params: Params | None = None) -> Any:
        """The first column of the first row; None without one."""
        compiled = self._for(connection)
        cursor = self._execute(connection, compiled, params or {})
        found = cursor.fetchone()
        cursor.close()
        return None if found is None else found[0]

    def run(self, connection: Connection, params: Params) -> int:
        """Carry it out once; how many rows it changed."""
        cursor = self._execute(connection, self._for(connection), params)
        changed: int = cursor.rowcount
        cursor.close()
        return changed

    def run_many(self, connection: Connection, params: Sequence[Params]) -> int:
        """Carry it out for each, in this order; how many rows were changed."""
        if len(params) == 1:
            return self.run(connection, params[0])
        compiled = self._for(connection)
        cursor = connection.connection.cursor()
        values = [compiled.params(given) for given in params]
        try:
            cursor.executemany(compiled.sql, values)
        except connection.dialect.loaded_dbapi.Error as error:
            raise translated(connection, compiled.sql, error) from error
        changed: int = cursor.rowcount
        cursor.close()
        return changed

    def run_rows(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Carry it out for each row of values, given in the order in which they stand in it."""
        compiled = self._for(connection)
        assert compiled.order is not None, "only for drivers that take parameters by position"
        assert len(rows[0]) == len(compiled.order), compiled.order
        cursor = connection.connection.cursor()
        try:
            if len(rows) == 1:
                cursor.execute(compiled.sql, rows[0])
            else:
                cursor.executemany(compiled.sql, rows)
        except connection.dialect.loaded_dbapi.Error as error:
            raise translated(connection, compiled.sql, error) from error
        cursor.close()

    def _execute(self, connection: Connection, compiled: _Compiled, params: Params) -> Any:
        cursor = connection.connection.cursor()
        try:
            cursor.execute(compiled.sql, compiled.params(params))
        except connection.dialect.loaded_dbapi.Error as error:
            raise translated(connection, compiled.sql, error) from error
        return cursor

    def _for(self, connection: Connection) -> _Compiled:
        assert connection.in_transaction(), "the driver would commit each statement by itself"
        dialect = connection.dialect
        known = self._compiled.get(dialect.name)
        if known is None:
            statement = self._statement
            if callable(statement):
                statement = statement(dialect.name)
            made: Any = statement.compile(dialect=dialect, column_keys=self._columns)
            names = [str(column.key) for column in getattr(statement, "selected_columns", ())]
            known = self._compiled[dialect.name] = _Compiled(
                sql=str(made),
                fixed=dict(made.params),
                order=tuple(made.positiontup) if made.positional else None,
                row=_row_maker(names),
            )
        return known


def _row_maker(names: Sequence[str]) -> Callable[[Iterable[Any]], Any] | None:
    if not names:
        return None
    row: Any = namedtuple("row", list(names), rename=True)  # type: ignore[misc]  # noqa: PYI024
    make: Callable[[Iterable[Any]], Any] = row._make
    return make
