"""How commands speak: tables for people, JSON for programs, a line and an exit code for a "no"."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from domain.attempt import Ending
from domain.errors import (
    BusyError,
    ConflictError,
    DrystoneError,
    InvalidError,
    NeverFitsError,
    NotFoundError,
    UnavailableError,
)
from domain.reasons import Reason
from drystone.cli.exits import Exit
from drystone.client import Client
from drystone.questions import BUSY_S_MAX

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]
UrlOption = Annotated[
    str | None,
    typer.Option("--api", envvar="DRYSTONE_API_URL", help="Where the REST API answers."),
]
TeamOption = Annotated[str, typer.Option("--team", "-t", envvar="DRYSTONE_TEAM", help="Who pays.")]

RETRIES = 3
"""A person waits: about two seconds until the API is said to be away."""
_EXITS: Sequence[tuple[type[DrystoneError], Exit]] = (
    (UnavailableError, Exit.UNREACHABLE),
    (BusyError, Exit.BUSY),
    (NotFoundError, Exit.NOT_FOUND),
    (NeverFitsError, Exit.NOT_RUN),
    (ConflictError, Exit.REFUSED),
    (InvalidError, Exit.USAGE),
)


def note(message: str) -> None:
    """A line for people, beside what programs read."""
    print(f"drystone: {message}", file=sys.stderr, flush=True)


def fail(message: str, code: int) -> NoReturn:
    """Say why on standard error and end."""
    note(message)
    raise typer.Exit(code)


def exit_of(error: DrystoneError) -> Exit:
    """The exit code that stands for a refusal of what was typed."""
    return next((code for kind, code in _EXITS if isinstance(error, kind)), Exit.REFUSED)


@contextmanager
def asking(url: str | None) -> Iterator[Client]:
    """A client; whatever the API refuses ends the command with its code."""
    try:
        with Client(url, retries=RETRIES, waits=_say_that_it_waits) as client:
            yield client
    except DrystoneError as error:
        fail(explained(error), exit_of(error))
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None


def _say_that_it_waits(error: DrystoneError) -> None:
    note(f"{error} (asking again for {BUSY_S_MAX:.0f} s at most)")


def explained(error: DrystoneError) -> str:
    """The refusal in words, with the machines lost per reason where there are any."""
    text = str(error)
    if isinstance(error, NeverFitsError) and error.lost:
        text += " (" + ", ".join(f"{reason}: {n}" for reason, n in error.lost.items()) + ")"
    return text


def spoken(reason: Reason | None) -> str:
    """`no room cpu`."""
    return "" if reason is None else reason.value.replace("_", " ")


def ended(ending: Ending) -> str:
    """How an attempt ended, in a few words."""
    code = "" if ending.exit_code is None else str(ending.exit_code)
    words = (ending.kind.value, code, spoken(ending.reason), ending.detail)
    return " ".join(word for word in words if word)


def print_json(thing: Any) -> None:
    """One document on standard output."""
    print(json.dumps(_plain(thing), indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """A table as wide as the terminal; a line when there is nothing to show."""
    if not rows:
        print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console().print(table)


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    """One thing, a fact per line; empty facts are left out."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        if value not in (None, "", (), {}):
            print(f"{name:<{width}}  {_cell(value)}")


def console(*, to_stderr: bool = False) -> Console:
    """Where tables and progress go; wide enough for names when nobody looks."""
    made = Console(stderr=to_stderr, highlight=False, markup=False)
    return (
        made
        if made.is_terminal
        else Console(stderr=to_stderr, highlight=False, markup=False, width=200)
    )


def age(since: datetime | None) -> str:
    """`4s`, `12m`, `3h`, `9d`: how long ago."""
    if since is None:
        return ""
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _plain(thing: Any) -> Any:
    if isinstance(thing, BaseModel):
        return thing.model_dump(mode="json")
    if isinstance(thing, list | tuple):
        return [_plain(part) for part in thing]
    return thing
