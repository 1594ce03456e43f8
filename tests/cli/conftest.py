"""A whole Drystone as `drystone up` runs it, one for all tests here, and its commands."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from drystone.stack.folder import read_state
from tests.support.fleet import free_port, wait_until

COMMAND_S_MAX = 90
OUTPUT_BYTES_MAX = 1_000_000
"""Kept of each stream, so that a test can write more."""
DRYSTONE = [sys.executable, "-P", "-m", "drystone.cli.main"]


@dataclass
class Up:
    """Where it keeps its data, and on which ports it is."""

    data: Path
    api_port: int
    temporal_port: int
    ui_port: int

    @property
    def options(self) -> list[str]:
        """For `drystone up`."""
        ports = {
            "--api-port": self.api_port,
            "--temporal-port": self.temporal_port,
            "--ui-port": self.ui_port,
        }
        return [f"--data={self.data}", *(f"{name}={port}" for name, port in ports.items())]

    @property
    def environment(self) -> dict[str, str]:
        """What a person's shell would have."""
        outside = {k: v for k, v in os.environ.items() if not k.startswith("DRYSTONE_")}
        return {
            **outside,
            "DRYSTONE_API_URL": f"http://127.0.0.1:{self.api_port}",
            "DRYSTONE_DATA_DIR": str(self.data),
            "DRYSTONE_OUTPUT_BYTES_MAX": str(OUTPUT_BYTES_MAX),
        }

    def start(self) -> subprocess.Popen[bytes]:
        """`drystone up` in the background, until it says that it is ready."""
        with (self.data.parent / "up.out").open("ab") as out:
            process = subprocess.Popen(
                [*DRYSTONE, "up", *self.options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environment,
                start_new_session=True,
            )

        def ready() -> bool:
            assert process.poll() is None, (self.data.parent / "up.out").read_text()
            state = read_state(self.data)
            return state is not None and state.ready and state.pid == process.pid

        wait_until(ready, "drystone up is ready")
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        """Ctrl-C; the exit code. Nothing that it started is left."""
        state = read_state(self.data)
        children = [child.pid for child in state.children.values()] if state else []
        process.send_signal(signal.SIGINT)
        code = process.wait(COMMAND_S_MAX)
        assert not [pid for pid in children if psutil.pid_exists(pid)]
        return code

    def call(
        self, *words: str, text: str = "", environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        return subprocess.run(
            [*DRYSTONE, *words],
            input=text,
            capture_output=True,
            text=True,
            env={**self.environment, **(environment or {})},
            timeout=COMMAND_S_MAX,
            check=False,
        )


def make_up(folder: Path) -> Up:
    """On free ports; not started."""
    return Up(folder / "data", free_port(), free_port(), free_port())


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Running."""
    made = make_up(tmp_path_factory.mktemp("up"))
    made.data.mkdir()
    process = made.start()
    yield made
    assert made.stop(process) == 0


def call(words: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command that needs nothing running."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith("DRYSTONE_")}
    return subprocess.run(
        [*DRYSTONE, *words],
        capture_output=True,
        text=True,
        env={**outside, **environment},
        timeout=COMMAND_S_MAX,
        check=False,
    )
