"""What an `up` that was killed has left is named, told to stop and waited for; nobody else is."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drystone.stack.child import began_at
from drystone.stack.folder import ChildProcess, UpState, write_state
from drystone.stack.leftovers import clear_leftovers, leftovers

Spawn = Callable[[str], subprocess.Popen[bytes]]
POLITE = "echo; exec sleep 60"
DEAF = "trap '' TERM; echo; while :; do sleep 0.05; done"


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Shells that have written a line, so their traps are set; none outlives the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(script: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def left(folder: Path, **children: subprocess.Popen[bytes]) -> None:
    """As an `up` writes it, before it is killed."""
    known = {n: ChildProcess(pid=p.pid, began=began_at(p.pid) or 0) for n, p in children.items()}
    _write(folder, known)


def _write(folder: Path, known: dict[str, ChildProcess]) -> None:
    state = UpState(pid=1, api_url="", ui_url="", temporal_address="", machine="m", children=known)
    write_state(folder, state)


async def cleared(folder: Path, *, seconds_max: float = 30, over: bool = False) -> list[str]:
    """What is said meanwhile."""
    said: list[str] = []
    ended = asyncio.Event()
    if over:
        ended.set()
    done = await clear_leftovers(leftovers(folder), said.append, ended, seconds_max)
    assert done is not over
    return said


async def test_it_says_for_whom_it_waits_and_how_long_at_most(tmp_path: Path, spawn: Spawn) -> None:
    keeper = spawn(POLITE)
    left(tmp_path, keeper=keeper)
    first, last = await cleared(tmp_path)
    assert f"left keeper (process {keeper.pid})" in first
    assert "up to 30 s" in first
    assert "have stopped" in last
    assert leftovers(tmp_path) == {}, "one that is dead and not buried counts no more"


async def test_what_does_not_stop_in_time_is_killed_and_named(tmp_path: Path, spawn: Spawn) -> None:
    deaf = spawn(DEAF)
    left(tmp_path, agent=deaf)
    said = await cleared(tmp_path, seconds_max=0.2)
    assert said[-1] == f"not stopped after 0 s, killed: agent (process {deaf.pid})"
    assert deaf.wait(10) == -9


async def test_whoever_is_told_to_end_waits_no_longer(tmp_path: Path, spawn: Spawn) -> None:
    deaf = spawn(DEAF)
    left(tmp_path, keeper=deaf)
    said = await cleared(tmp_path, over=True)
    assert said[-1] == f"not waiting any longer for keeper (process {deaf.pid})"
    assert list(leftovers(tmp_path)) == ["keeper"]


async def test_a_stranger_with_the_same_number_is_let_alone(tmp_path: Path, spawn: Spawn) -> None:
    stranger = spawn(POLITE)
    _write(tmp_path, {"keeper": ChildProcess(pid=stranger.pid, began=1.0)})
    assert await cleared(tmp_path) == []
    assert stranger.poll() is None


async def test_a_folder_without_a_state_has_nothing_left(tmp_path: Path) -> None:
    assert await cleared(tmp_path) == []
