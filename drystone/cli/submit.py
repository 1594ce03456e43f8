"""`drystone submit -f FILE`: many tasks at once, and a wait for all of them."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from domain.attempt import Phase
from domain.errors import BusyError, DrystoneError, InvalidError, NeverFitsError, UnavailableError
from domain.views import TaskView
from drystone.cli.asked import Entry, read_entries
from drystone.cli.exits import Exit
from drystone.cli.output import (
    JsonOption,
    UrlOption,
    console,
    exit_of,
    explained,
    fail,
    note,
    print_json,
    print_table,
)
from drystone.client import AsyncClient

CONCURRENCY = 32
WAIT_S = 20.0
BUSY_S_MAX = 600.0
"""So long a submission is offered again while the API says that its backlog is full."""
REFUSALS_SHOWN_MAX = 20
_QUEUED = (Phase.PENDING, Phase.OFFERED)
_ALL_THE_SAME = (UnavailableError, BusyError)
"""What one submission was told, the next would be told too."""

Result = TaskView | DrystoneError


def submit(
    file: Annotated[
        str, typer.Option("--file", "-f", help="JSON or one JSON object a line; - = input.")
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Until all have ended.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="With --wait: seconds to wait at most.", min=0)
    ] = None,
    team: Annotated[str | None, typer.Option("--team", "-t", help="Where none is given.")] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit tasks from a file.

    Exit codes: 0 all were accepted (with --wait: all succeeded); 1 some ran and failed; 2 the file
    holds no tasks (it is not there, not JSON, or empty), and nothing was submitted; 65 some were
    refused: a field does not fit, or the id stands for another task; 69 the API cannot be reached;
    71 it takes no more for now; 75 some never ran: no machine could ever hold them, they ended
    while they waited, or their command could not be started; when --timeout has passed, 76 some
    still wait for a machine, 77 some still run; 130 Ctrl-C, and what was accepted goes on. Where
    several hold: the first of 69, 71, 65, 67, 75 that is true of a submission, then 1, 76, 77, 75.
    One task that is refused holds up no other.
    """
    entries = read_entries(file, _text(file))
    if team is not None:
        entries = [Entry(entry.place, {"team": team, **entry.body}) for entry in entries]
    batch = Batch(entries)
    try:
        asyncio.run(_run(batch, url, wait, timeout))
    except KeyboardInterrupt:
        _say_what_goes_on(batch)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except DrystoneError as error:
        fail(explained(error), exit_of(error))
    results = [batch.results[place] for place in range(len(entries))]
    _print_refusals(batch)
    if as_json:
        print_json([_document(e, r) for e, r in zip(entries, results, strict=True)])
    else:
        _print(results, wait)
    raise typer.Exit(verdict_code(results, wait))


def verdict_code(results: Sequence[Result], wait: bool) -> Exit:
    """The gravest code: what cannot be known, then what was refused, then how tasks ended."""
    errors = {_exit_of(result) for result in results if isinstance(result, DrystoneError)}
    for code in (Exit.UNREACHABLE, Exit.BUSY, Exit.REFUSED, Exit.NOT_FOUND, Exit.NOT_RUN):
        if code in errors:
            return code
    if not wait:
        return Exit.OK
    tasks = [result for result in results if isinstance(result, TaskView)]
    ran = [t for t in tasks if t.phase.final and t.phase is not Phase.SUCCEEDED and _has_run(t)]
    if ran:
        return Exit.FAILED
    if any(t.phase in _QUEUED for t in tasks):
        return Exit.STILL_QUEUED
    if any(not t.phase.final for t in tasks):
        return Exit.STILL_RUNNING
    if any(t.phase is not Phase.SUCCEEDED for t in tasks):
        return Exit.NOT_RUN
    return Exit.OK


def _exit_of(error: DrystoneError) -> Exit:
    """An entry whose fields do not fit: the command was called rightly, and others may fit."""
    return Exit.REFUSED if isinstance(error, InvalidError) else exit_of(error)


def _has_run(task: TaskView) -> bool:
    return task.outcome is not None and task.outcome.exit_code is not None


async def _run(batch: "Batch", url: str | None, wait: bool, timeout: float | None) -> None:
    async with AsyncClient(url, busy_s_max=BUSY_S_MAX, waits=batch.waits) as client:
        await batch.run(client, wait, timeout)


@dataclass
class Batch:
    """The tasks of one file, and by their place what has become of each so far."""

    entries: Sequence[Entry]
    results: dict[int, Result] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    """Their requests have left, whether answered or not."""
    given_up: DrystoneError | None = None
    told: bool = False

    def waits(self, error: DrystoneError) -> None:
        """Say once that it is no fault to see nothing happen."""
        if not self.told:
            self.told = True
            note(f"{error} (asking again for {BUSY_S_MAX:.0f} s at most)")

    async def run(self, client: AsyncClient, wait: bool, timeout: float | None) -> None:
        """Submit all; wait for their ends where that is asked for."""
        turns = asyncio.Semaphore(CONCURRENCY)
        deadline = None if timeout is None else time.monotonic() + timeout
        places = range(len(self.entries))
        with _progress() as progress:
            bar = progress.add_task("submitted", total=len(places))

            async def one(place: int) -> None:
                async with turns:
                    self.results[place] = await self._submit(client, place)
                    progress.advance(bar)

            await asyncio.gather(*(one(place) for place in places))
            if not wait:
                return
            over = progress.add_task("ended", total=len(places))

            async def end(place: int) -> None:
                result = self.results[place]
                if isinstance(result, TaskView):
                    self.results[place] = await _until_ended(client, result, turns, deadline)
                progress.advance(over)

            await asyncio.gather(*(end(place) for place in places))

    async def _submit(self, client: AsyncClient, place: int) -> Result:
        if self.given_up is not None:
            return self.given_up
        self.sent.add(place)
        try:
            return await client.submit(self.entries[place].body)
        except _ALL_THE_SAME as error:
            self.given_up = error
            return error
        except DrystoneError as error:
            return error


async def _until_ended(
    client: AsyncClient, task: TaskView, turns: asyncio.Semaphore, deadline: float | None
) -> Result:
    while not task.phase.final:
        async with turns:
            left_s = WAIT_S if deadline is None else deadline - time.monotonic()
            try:
                task = await client.get(
                    task.id, team=task.team, wait_s=max(0.0, min(WAIT_S, left_s))
                )
            except DrystoneError as error:
                return error
        if left_s <= 0:
            return task
    return task


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(to_stderr=True),
        disable=not sys.stderr.isatty(),
    )


def _text(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.buffer.read().decode("utf-8-sig")
        with open(file, encoding="utf-8-sig") as opened:
            return opened.read()
    except UnicodeDecodeError as error:
        fail(f"{file} is not UTF-8 (byte {error.start})", Exit.USAGE)
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}", Exit.USAGE)


def _say_what_goes_on(batch: Batch) -> None:
    results = batch.results
    accepted = [place for place, result in results.items() if isinstance(result, TaskView)]
    open_ones = [place for place in accepted if not _is_over(results[place])]
    unknown = sorted(batch.sent - set(results))
    note(
        f"interrupted: {len(accepted)} of {len(batch.entries)} tasks were accepted, and "
        f"{len(open_ones)} of them may go on"
    )
    for place in unknown:
        body = batch.entries[place].body
        name = f"{body.get('team', 'default')}/{body['id']}"
        note(f"{batch.entries[place].place}: {name} may have been accepted too")


def _is_over(result: Result) -> bool:
    return isinstance(result, TaskView) and result.phase.final


def _document(entry: Entry, result: Result) -> Any:
    if isinstance(result, TaskView):
        return result.model_dump(mode="json")
    refused: dict[str, Any] = {"error": result.code, "message": str(result), "place": entry.place}
    return refused | ({"lost": result.lost} if isinstance(result, NeverFitsError) else {})


def _print_refusals(batch: Batch) -> None:
    errors = {p: r for p, r in sorted(batch.results.items()) if isinstance(r, DrystoneError)}
    same = [place for place, error in errors.items() if isinstance(error, _ALL_THE_SAME)]
    own = [place for place in errors if place not in set(same)]
    for place in own[:REFUSALS_SHOWN_MAX]:
        note(f"{batch.entries[place].place}: {explained(errors[place])}")
    if len(own) > REFUSALS_SHOWN_MAX:
        note(f"and {len(own) - REFUSALS_SHOWN_MAX} more were refused")
    if same:
        first = batch.entries[same[0]].place
        note(
            f"{len(same)} of {len(batch.entries)} tasks got no answer, {first} first:"
            f" {explained(errors[same[0]])}"
        )


def _print(results: Sequence[Result], wait: bool) -> None:
    tasks = [result for result in results if isinstance(result, TaskView)]
    if not wait:
        for task in tasks:
            print(task.key)
        return
    counts = Counter(task.phase.value for task in tasks)
    counts["refused"] = len(results) - len(tasks)
    print_table(["state", "tasks"], [(n, c) for n, c in counts.items() if c], "no tasks")


def add_submit(app: typer.Typer) -> None:
    """Add this command."""
    app.command(rich_help_panel="Tasks")(submit)
