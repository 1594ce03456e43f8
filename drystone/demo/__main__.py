"""`make demo`: a Drystone of its own does real work, and every result is checked for truth."""

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from domain.attempt import Phase
from domain.errors import DrystoneError
from domain.views import TaskView
from drystone.client import AsyncClient
from drystone.demo.work import TEAM, Kind, Piece, pieces, wrong_with
from drystone.stack.folder import UpState, read_state
from drystone.stack.plan import free_port

FILES = 240
READY_S_MAX = 90.0
WORK_S_MAX = 240.0
STOP_S_MAX = 120.0
POLL_S = 0.1
CONCURRENCY = 24
PROGRESS_S = 5.0

End = TaskView | DrystoneError


def main() -> int:
    """The exit code: 0 when every result is as it must be."""
    parser = argparse.ArgumentParser(prog="drystone.demo", description=__doc__)
    parser.add_argument("--files", type=int, default=FILES, help="one task each")
    parser.add_argument("--keep", action="store_true", help="leave everything running")
    given = parser.parse_args()
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="drystone-demo-"))
    stack = _start(folder / "data")
    try:
        state = _ready(stack, folder / "data")
        console.print(f"Drystone is up for the demo in {folder}", soft_wrap=True)
        console.print(f"API {state.api_url}, Temporal's Web UI {state.ui_url}", soft_wrap=True)
        right = _work(console, folder / "work", state, given.files)
    except (DemoError, TimeoutError, KeyboardInterrupt) as error:
        print(f"demo: {str(error) or type(error).__name__}", file=sys.stderr)
        _stop(stack)
        return 1
    if given.keep:
        console.print(f"every task's history in Temporal's Web UI: {state.ui_url}")
        console.print(f"left running; stop: drystone down --data {folder / 'data'}", soft_wrap=True)
        return 0 if right else 1
    _stop(stack)
    console.print(
        f"stopped again; with --keep everything is left running, and {state.ui_url} shows each "
        "task's history",
        soft_wrap=True,
    )
    if right:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if right else 1


class DemoError(Exception):
    """The demo cannot go on."""


def _start(data: Path) -> "subprocess.Popen[bytes]":
    data.mkdir(parents=True)
    ports = {"--api-port": free_port(), "--temporal-port": free_port(), "--ui-port": free_port()}
    options = [f"{name}={port}" for name, port in ports.items()]
    with (data / "up.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "drystone.stack", f"--data={data}", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _ready(stack: "subprocess.Popen[bytes]", data: Path) -> UpState:
    deadline = time.monotonic() + READY_S_MAX
    while time.monotonic() < deadline:
        if stack.poll() is not None:
            raise DemoError(f"Drystone did not start:\n{(data / 'up.log').read_text()}")
        state = read_state(data)
        if state is not None and state.ready:
            return state
        time.sleep(POLL_S)
    raise DemoError(f"not ready after {READY_S_MAX:.0f} s: see {data / 'up.log'}")


def _work(console: Console, folder: Path, state: UpState, files: int) -> bool:
    work = pieces(folder, files)
    began = time.monotonic()
    ends = asyncio.run(_all(console, state.api_url, work))
    took_s = time.monotonic() - began
    wrong = {p.id: w for p, e in zip(work, ends, strict=True) if (w := wrong_with(p, e))}
    _print_results(console, work, ends, wrong)
    for name, what in wrong.items():
        console.print(f"WRONG {name}: {what}")
    ran = sum(isinstance(end, TaskView) for end in ends)
    console.print(
        f"{ran} tasks in {took_s:.1f} s ({ran / took_s:.0f} a second), {len(wrong)} wrong"
    )
    return not wrong


async def _all(console: Console, url: str, work: Sequence[Piece]) -> list[End]:
    turns = asyncio.Semaphore(CONCURRENCY)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("tasks ended", total=len(work))
        async with AsyncClient(url) as client, asyncio.timeout(WORK_S_MAX):
            submitted = await asyncio.gather(*(_submit(client, turns, p) for p in work))
            cancelling = asyncio.create_task(_cancel_once_it_runs(client, work))

            async def end(first: End) -> End:
                last = await _end(client, turns, first)
                progress.advance(bar)
                return last

            ends = await asyncio.gather(*(end(first) for first in submitted))
            await cancelling
            return list(ends)


async def _submit(client: AsyncClient, turns: asyncio.Semaphore, piece: Piece) -> End:
    async with turns:
        try:
            return await client.submit(piece.body)
        except DrystoneError as error:
            return error


async def _cancel_once_it_runs(client: AsyncClient, work: Sequence[Piece]) -> None:
    for piece in (p for p in work if p.kind is Kind.CANCELLED):
        for _ in range(int(WORK_S_MAX / POLL_S)):
            if (await client.get(piece.id, team=TEAM)).phase is Phase.RUNNING:
                break
            await asyncio.sleep(POLL_S)
        await client.cancel(piece.id, team=TEAM)


async def _end(client: AsyncClient, turns: asyncio.Semaphore, first: End) -> End:
    if isinstance(first, DrystoneError):
        return first
    while not first.phase.final:
        async with turns:
            first = await client.get(first.id, team=TEAM, wait_s=PROGRESS_S)
    return first


def _print_results(
    console: Console, work: Sequence[Piece], ends: Sequence[End], wrong: dict[str, str]
) -> None:
    table = Table(title="results", title_justify="left")
    for column in ("what was asked", "tasks", "as it must be", "how it ended", "attempts"):
        table.add_column(column)
    for kind in Kind:
        found = [(p, e) for p, e in zip(work, ends, strict=True) if p.kind is kind]
        attempts = [e.number for _, e in found if isinstance(e, TaskView)]
        right = sum(p.id not in wrong for p, _ in found)
        table.add_row(
            kind.value,
            str(len(found)),
            f"{right} of {len(found)}",
            _told(found[0][1]) if found else "",
            f"{sum(attempts)}" if attempts else "none",
        )
    console.print(table)


def _told(end: End) -> str:
    if isinstance(end, DrystoneError):
        return f"refused at submit: {end}"
    words = [end.phase.value]
    if end.outcome is not None and end.outcome.reason is not None:
        words.append(end.outcome.reason.value.replace("_", " "))
    return ", ".join(words)


def _stop(stack: "subprocess.Popen[bytes]") -> None:
    if stack.poll() is None:
        stack.terminate()
        try:
            stack.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            stack.kill()
            stack.wait()


if __name__ == "__main__":
    sys.exit(main())
