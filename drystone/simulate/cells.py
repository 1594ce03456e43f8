"""CSV files as rows of named cells; a fault has its file and line. Knows no format's meaning."""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NoReturn, TypeVar

from domain.resources import QUANTITY_MAX

MS_PER_S = 1_000
SECONDS_MAX = 10**10
"""Three centuries: far above any trace, far below what a date of the engine can hold."""

T = TypeVar("T")


class InputError(Exception):
    """A file cannot be used as it is. Says where: `tasks.csv:17: cpu_milli: ...`."""

    def __init__(self, path: Path, line: int | None, message: str) -> None:
        where = str(path) if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {message}")


@dataclass(frozen=True, slots=True)
class Columns:
    """What a file may and must have in its header."""

    known: Sequence[str]
    required: Sequence[str]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file, by column."""

    path: Path
    line: int
    cells: dict[str, str]

    def fail(self, message: str) -> NoReturn:
        """This line is wrong."""
        raise InputError(self.path, self.line, message)

    def text(self, column: str, default: str = "") -> str:
        """The cell, or the default when it is empty or its column is absent."""
        return self.cells.get(column, "") or default

    def needed(self, column: str) -> str:
        """The cell, which must not be empty."""
        return self.text(column) or self.fail(f"{column} must not be empty")

    def quantity(self, column: str, most: int = QUANTITY_MAX) -> int:
        """A whole number from 0 to `most`; empty = 0."""
        written = self.text(column, "0")
        # isdecimal alone would let digits of other scripts through.
        if not (written.isascii() and written.isdecimal()) or int(written) > most:
            self.fail(f"{column} must be a whole number from 0 to {most}, not {written!r}")
        return int(written)

    def milliseconds(self, column: str) -> int | None:
        """Seconds with at most three decimals, as whole milliseconds; None when empty."""
        written = self.text(column)
        if not written:
            return None
        try:
            exact = Decimal(written) * MS_PER_S
        except InvalidOperation:
            exact = Decimal("nan")
        if exact.is_finite() and 0 <= exact <= SECONDS_MAX * MS_PER_S and exact == int(exact):
            return int(exact)
        return self.fail(
            f"{column} must be seconds of at least 0 with 3 decimals at most: {written!r}"
        )

    def names(self, column: str) -> tuple[str, ...]:
        """`a|b|c`; empty = none."""
        written = self.text(column)
        return tuple(name.strip() for name in written.split("|")) if written else ()

    def pairs(self, column: str) -> tuple[tuple[str, str], ...]:
        """`k=v;k2=v2`, the value up to the end; a key alone has an empty value."""
        written = self.text(column)
        if not written:
            return ()
        parted = [part.partition("=") for part in written.split(";") if part.strip()]
        if any(not key.strip() for key, _, _ in parted):
            self.fail(f"{column} must be k=v;k2=v2, not {written!r}")
        return tuple((key.strip(), value.strip()) for key, _, value in parted)

    def flag(self, column: str) -> bool:
        """0 or 1; empty = 0."""
        written = self.text(column, "0")
        if written not in ("0", "1"):
            self.fail(f"{column} must be 0 or 1, not {written!r}")
        return written == "1"


def rows(path: Path, columns: Columns) -> Iterator[Row]:
    """Every line of a .csv or .csv.gz, in order; InputError for a header or line that is wrong."""
    lines = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        header = next(lines, None)
        if not header:
            raise InputError(path, None, "is empty: a header is needed")
        _check_header(path, [name.strip() for name in header], columns)
        for cells in lines:
            if not cells:
                continue
            if len(cells) != len(header):
                message = f"has {len(cells)} cells, the header {len(header)}"
                raise InputError(path, lines.line_num, message)
            named = {name.strip(): cell.strip() for name, cell in zip(header, cells, strict=True)}
            yield Row(path, lines.line_num, named)
    except csv.Error as error:
        raise InputError(path, lines.line_num, str(error)) from error


def unique(path: Path, what: str, found: list[T], name_of: Callable[[T], str]) -> list[T]:
    """`found` itself, if no two have one name."""
    seen: set[str] = set()
    for number, one in enumerate(found):
        name = name_of(one)
        if name in seen:
            message = f"{what} {name!r} stands in the file twice (row {number + 1} again)"
            raise InputError(path, None, message)
        seen.add(name)
    return found


def _check_header(path: Path, header: list[str], columns: Columns) -> None:
    unknown = [name for name in header if name not in columns.known]
    if unknown:
        known = ", ".join(columns.known)
        raise InputError(path, 1, f"unknown columns: {', '.join(unknown)}; known are {known}")
    missing = [name for name in columns.required if name not in header]
    if missing:
        raise InputError(path, 1, f"missing columns: {', '.join(missing)}")
    if len(set(header)) < len(header):
        twice = sorted({name for name in header if header.count(name) > 1})
        raise InputError(path, 1, f"columns that stand twice: {', '.join(twice)}")


def _text(path: Path) -> str:
    try:
        found = path.read_bytes()
        return (gzip.decompress(found) if path.suffix == ".gz" else found).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(path, None, f"cannot be read: {error}") from error
