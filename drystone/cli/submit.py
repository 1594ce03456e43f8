"""`drystone submit -f FILE`: many tasks at once, and waiting for them with a progress bar."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from domain.attempt import Phase
from domain.errors import DrystoneError, NeverFitsError, UnavailableError
from domain.views import TaskView
from drystone.cli.asked import read_file
from drystone.cli.exits import Exit
from drystone.cli.output import (
    JsonOption,
    UrlOption,
    console,
    exit_of,
    explained,
    fail,
    print_json,
    print_table,
)
from drystone.client import AsyncClient
from drystone.questions import default_url

CONCURRENCY = 32
WAIT_S = 20.0
_QUEUED = (Phase.PENDING, Phase.OFFERED)

Result = TaskView | DrystoneError


def submit(
    file: Annotated[
        Path, typer.Option("--file", "-f", help="JSON or one JSON object a line; - = input.")
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Until all have ended.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds to wait at most.")
    ] = None,
    team: Annotated[str | None, typer.Option("--team", "-t", help="Where none is given.")] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit tasks from a file.

    Exit codes: 0 accepted (with --wait: all succeeded); 1 some ran and failed; 65 some were
    refused; 66 some could never run on any machine; 69 the API cannot be reached; 75 some ended
    without
    running; when --timeout has passed, 76 some still wait for a machine, 77 some still run.
    """
    bodies = read_file(file, _text(file))
    if team is not None:
        bodies = [{"team": team, **body} for body in bodies]
    try:
        results = asyncio.run(_submit_all(url or default_url(), bodies, wait, timeout))
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    if as_json:
        print_json([_document(result) for result in results])
    else:
        _print(bodies, results, wait)
    raise typer.Exit(verdict_code(results, wait))


def verdict_code(results: Sequence[Result], wait: bool) -> Exit:
    """The gravest code: what cannot be known, then what was refused, then how tasks ended."""
    errors = {exit_of(result) for result in results if isinstance(result, DrystoneError)}
    for code in (Exit.UNREACHABLE, Exit.NEVER_FITS, Exit.REFUSED, Exit.NOT_FOUND):
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


def _has_run(task: TaskView) -> bool:
    return task.outcome is not None and task.outcome.exit_code is not None


async def _submit_all(
    url: str, bodies: Sequence[dict[str, Any]], wait: bool, timeout: float | None
) -> list[Result]:
    turns = asyncio.Semaphore(CONCURRENCY)
    deadline = None if timeout is None else time.monotonic() + timeout
    with _progress() as progress:
        async with AsyncClient(url) as client:
            sent = progress.add_task("submitted", total=len(bodies))

            async def one(body: dict[str, Any]) -> Result:
                async with turns:
                    try:
                        return await client.submit(body)
                    except DrystoneError as error:
                        return error
                    finally:
                        progress.advance(sent)

            results = list(await asyncio.gather(*(one(body) for body in bodies)))
            if not wait:
                return results
            ended = progress.add_task("ended", total=len(bodies))

            async def end(result: Result) -> Result:
                if isinstance(result, TaskView):
                    result = await _until_ended(client, result, turns, deadline)
                progress.advance(ended)
                return result

            return list(await asyncio.gather(*(end(result) for result in results)))


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


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file} cannot be read: {error}", Exit.USAGE)


def _document(result: Result) -> Any:
    if isinstance(result, TaskView):
        return result.model_dump(mode="json")
    refused: dict[str, Any] = {"error": result.code, "message": str(result)}
    return refused | ({"lost": result.lost} if isinstance(result, NeverFitsError) else {})


def _print(bodies: Sequence[dict[str, Any]], results: Sequence[Result], wait: bool) -> None:
    for body, result in zip(bodies, results, strict=True):
        if isinstance(result, DrystoneError):
            print(f"drystone: {body.get('id', 'task')}: {explained(result)}", file=sys.stderr)
            if isinstance(result, UnavailableError):
                break
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
