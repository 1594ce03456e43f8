"""What an `up` that was killed has left running: found by what it wrote down, told to stop, named.

It would hold ports, files and attempts, so the next `up` waits for it. Knows nothing of its work.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from drystone.stack.child import began_at
from drystone.stack.folder import ChildProcess, read_state

LEFTOVER_S_MAX = 45.0
"""A keeper gives running attempts their grace first (30 s), then waits for its agent (3 s)."""
POLL_S = 0.1

Leftovers = Mapping[str, ChildProcess]


def leftovers(folder: Path) -> dict[str, ChildProcess]:
    """The processes that the last `up` on this folder started and that still run, by name."""
    state = read_state(folder)
    return {} if state is None else {n: c for n, c in state.children.items() if _runs(c)}


def named(found: Leftovers) -> str:
    """For people: `keeper (process 12), temporal (process 14)`."""
    return ", ".join(f"{name} (process {child.pid})" for name, child in found.items())


async def clear_leftovers(
    found: Leftovers,
    say: Callable[[str], None],
    over: asyncio.Event,
    seconds_max: float = LEFTOVER_S_MAX,
) -> bool:
    """Terminate them, and kill what is late; False when told meanwhile that all is over."""
    if not found:
        return True
    say(
        f"an `up` that was killed has left {named(found)}: told to stop, waiting up to "
        f"{seconds_max:.0f} s (running attempts get their grace)"
    )
    began = time.monotonic()
    _signal(found, kill=False)
    while late := {name: child for name, child in found.items() if _runs(child)}:
        if over.is_set():
            say(f"not waiting any longer for {named(late)}")
            return False
        if time.monotonic() - began > seconds_max:
            say(f"not stopped after {seconds_max:.0f} s, killed: {named(late)}")
            _signal(late, kill=True)
            return True
        await asyncio.sleep(POLL_S)
    say(f"they have stopped ({time.monotonic() - began:.1f} s)")
    return True


def _runs(child: ChildProcess) -> bool:
    """False for a later process with the same number, and for one that nobody has buried yet."""
    if began_at(child.pid) != child.began:
        return False
    try:
        return bool(psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(found: Leftovers, *, kill: bool) -> None:
    for child in found.values():
        try:
            process = psutil.Process(child.pid)
            process.kill() if kill else process.terminate()
        except psutil.NoSuchProcess:
            continue
