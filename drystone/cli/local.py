"""`up`, `down`, `status`: everything on this machine. `up` becomes another process."""

import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated

import httpx
import psutil
import typer

from drystone.cli.exits import Exit
from drystone.cli.output import JsonOption, fail, print_facts, print_json, print_table
from drystone.cli.processes import become
from drystone.stack.folder import UpState, is_held, read_state
from drystone.stack.leftovers import LEFTOVER_S_MAX, leftovers, named
from runtime.settings import StoreSettings

DETACH_S_MAX = 90.0 + LEFTOVER_S_MAX
DOWN_S_MAX = 150.0
POLL_S = 0.1

DataOption = Annotated[
    Path | None,
    typer.Option("--data", envvar="DRYSTONE_DATA_DIR", help="The folder of everything kept."),
]


def up(
    data: DataOption = None,
    api_port: Annotated[int, typer.Option(help="REST API.")] = 8080,
    temporal_port: Annotated[int, typer.Option(help="Temporal server.")] = 7233,
    ui_port: Annotated[int, typer.Option(help="Temporal's Web UI.")] = 8233,
    agent_port: Annotated[
        int | None, typer.Option(help="Agent; any free port if left out.")
    ] = None,
    cpu: Annotated[
        str | None, typer.Option(help="Offer so much of this machine: 4, 1500m.")
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Offer so much of this machine: 8Gi.")] = None,
    machine: Annotated[str | None, typer.Option(help="This machine's name.")] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when ready.")] = False,
) -> None:
    """Run everything on this machine: Temporal and its Web UI, worker, API, agent, keeper."""
    given = {
        "--data": data and data.expanduser().absolute(),
        "--api-port": api_port,
        "--temporal-port": temporal_port,
        "--ui-port": ui_port,
        "--agent-port": agent_port,
        "--cpu": cpu,
        "--memory": memory,
        "--machine": machine,
    }
    arguments = [f"{option}={value}" for option, value in given.items() if value is not None]
    if detach:
        _detached(folder_of(data), arguments)
    else:
        become("drystone.stack", arguments)


def down(data: DataOption = None) -> None:
    """Stop what `up` started on this folder; running attempts get their grace first."""
    folder = folder_of(data)
    state = read_state(folder)
    if not is_held(folder) or state is None:
        fail(_nothing_is_up(folder), Exit.FAILED)
    psutil.Process(state.pid).terminate()
    if not _within(lambda: not is_held(folder), DOWN_S_MAX):
        fail(f"process {state.pid} has not stopped within {DOWN_S_MAX:.0f} s", Exit.FAILED)
    print("stopped")


def status(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Say what is up on this folder; exit 1 when nothing is."""
    folder = folder_of(data)
    state = read_state(folder) if is_held(folder) else None
    if state is None:
        if as_json:
            left = {name: child.model_dump() for name, child in leftovers(folder).items()}
            print_json({"up": False, "data": str(folder), "leftovers": left})
            raise typer.Exit(Exit.FAILED)
        fail(_nothing_is_up(folder), Exit.FAILED)
    api = _readiness(state)
    if as_json:
        print_json({"up": True, "data": str(folder), "api": api, **state.model_dump(mode="json")})
        return
    print_facts(
        [
            ("api", f"{state.api_url} ({api})"),
            ("web ui", state.ui_url),
            ("temporal", state.temporal_address),
            ("machine", state.machine),
            ("data", folder),
        ]
    )
    rows = [(name, child.pid, _alive(child.pid)) for name, child in state.children.items()]
    print_table(["process", "pid", "state"], rows, "no processes")


def folder_of(data: Path | None) -> Path:
    """The data folder meant by this option or its absence."""
    return StoreSettings().data_dir if data is None else data.expanduser().absolute()


def _nothing_is_up(folder: Path) -> str:
    told = f"nothing is up on {folder}"
    found = leftovers(folder)
    if not found:
        return told
    return (
        f"{told}, but an `up` that was killed has left {named(found)}: they end within "
        f"{LEFTOVER_S_MAX:.0f} s (running attempts get their grace), and the next `up` waits for it"
    )


def _detached(folder: Path, arguments: list[str]) -> None:
    """Start it in a session of its own and wait for its word."""
    command = [sys.executable, "-P", "-m", "drystone.stack", *arguments]
    if not is_held(folder) and (found := leftovers(folder)):
        waits = f"waiting up to {LEFTOVER_S_MAX:.0f} s"
        print(f"an `up` that was killed has left {named(found)}: {waits}", file=sys.stderr)
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=words,
            start_new_session=True,
        )
        _await_word(folder, process, words)


def _await_word(folder: Path, process: subprocess.Popen[bytes], words: IO[bytes]) -> None:

    def said() -> bool:
        state = read_state(folder)
        ready = state is not None and state.pid == process.pid and state.ready
        return ready or process.poll() is not None

    in_time = _within(said, DETACH_S_MAX)
    if process.returncode is not None:
        words.seek(0)
        print(words.read().decode(errors="replace"), end="", file=sys.stderr)
        raise typer.Exit(process.returncode or Exit.FAILED)
    if not in_time:
        fail(f"not ready within {DETACH_S_MAX:.0f} s: see {folder / 'logs'}", Exit.FAILED)
    state = read_state(folder)
    assert state is not None
    print(f"Drystone is up: API {state.api_url}, Web UI {state.ui_url}.")
    down = f"drystone down --data {shlex.quote(str(folder))}"
    print(f"Clients: export DRYSTONE_API_URL={state.api_url}")
    print(f"Stop:    {down}")


def _within(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _readiness(state: UpState) -> str:
    try:
        answer = httpx.get(f"{state.api_url}/readyz", timeout=10)
    except httpx.HTTPError:
        return "does not answer"
    return "ready" if answer.status_code == 200 else "not ready"


def _alive(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return "gone"


def add_local(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (up, down, status):
        app.command(rich_help_panel="This machine")(command)
