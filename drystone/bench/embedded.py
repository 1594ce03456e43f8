"""A private `drystone up` for a benchmark: a folder of its own, free ports, stopped at the end."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from drystone.stack.folder import UpState, read_state

READY_S_MAX = 120.0
STOP_S_MAX = 60.0
POLL_S = 0.1


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@contextmanager
def embedded(folder: Path, options: Sequence[str] = ()) -> Iterator[UpState]:
    """Everything on this machine, ready; `options` go to `drystone up`."""
    api, temporal, ui = free_ports(3)
    command = [sys.executable, "-P", "-m", "drystone.cli.main", "up", f"--data={folder}"]
    command += [f"--api-port={api}", f"--temporal-port={temporal}", f"--ui-port={ui}", *options]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield _ready(folder, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(folder: Path, process: subprocess.Popen[bytes]) -> UpState:
    deadline = time.monotonic() + READY_S_MAX
    while time.monotonic() < deadline:
        state = read_state(folder)
        if state is not None and state.ready:
            return state
        if process.poll() is not None:
            break
        time.sleep(POLL_S)
    text = (folder / "up.log").read_text(errors="replace")
    raise RuntimeError(f"drystone up was not ready within {READY_S_MAX:.0f} s:\n{text[-4000:]}")
