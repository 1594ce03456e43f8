"""More machines in the index: a cluster of simulated ones, which the measured tasks avoid."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from drystone.stack.folder import UpState

CLUSTER = "crowd"
REGISTERED_S_MAX = 600.0
STOP_S_MAX = 30.0
POLL_S = 0.5
RACK_MACHINES = 40


@contextmanager
def crowd(folder: Path, state: UpState, machines: int) -> Iterator[None]:
    """So many machines, registered, until the end of the block."""
    if machines == 0:
        yield
        return
    rows = [f"m{n},16000,65536,z{n % 20},r{n // RACK_MACHINES}" for n in range(machines)]
    file = folder / "crowd.csv"
    file.write_text("\n".join(["id,cpu_milli,memory_mib,zone,rack", *rows]) + "\n")
    command = [sys.executable, "-P", "-m", "agent", "--cluster", CLUSTER, "--simulate", str(file)]
    command += ["--folder", str(folder / CLUSTER), "--temporal", state.temporal_address]
    with (folder / "crowd.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ)
        )
    try:
        _wait_until_registered(state.api_url, machines)
        yield
    finally:
        process.terminate()
        process.wait(STOP_S_MAX)


def _wait_until_registered(url: str, machines: int) -> None:
    deadline = time.monotonic() + REGISTERED_S_MAX
    while time.monotonic() < deadline:
        answer = httpx.get(f"{url}/v1/clusters/{CLUSTER}", timeout=10)
        if answer.is_success and answer.json()["machines"] >= machines:
            return
        time.sleep(POLL_S)
    raise RuntimeError(f"{machines} machines were not registered within {REGISTERED_S_MAX:.0f} s")
