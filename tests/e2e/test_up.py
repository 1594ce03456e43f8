"""`drystone up`: everything on one machine, told when it cannot be, stopped and begun again."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from drystone.stack.folder import UpState, read_state
from tests.support.fleet import ENTRY_POINT, free_port, wait_until
from tests.support.rest import Rest

pytestmark = pytest.mark.e2e

STOP_S_MAX = 60
CALL_S_MAX = 120
PARTS = {"temporal", "worker", "api", "agent", "keeper"}


def outside() -> dict[str, str]:
    """An environment without settings of ours."""
    return {k: v for k, v in os.environ.items() if not k.startswith("DRYSTONE_")}


def call(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run to its end."""
    return subprocess.run(
        command, env=outside(), capture_output=True, text=True, timeout=CALL_S_MAX, check=False
    )


@dataclass
class Up:
    """One data folder, and the `up` on it."""

    data: Path
    api_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def words(self, **changed: int) -> list[str]:
        """The command line."""
        given = {"api": self.api_port, "temporal": free_port(), "ui": free_port(), **changed}
        ports = [f"--{name}-port={port}" for name, port in given.items()]
        return [ENTRY_POINT, "up", "--data", str(self.data), "--machine=here", *ports]

    def start(self) -> float:
        """Until it is ready; how long that took."""
        began = time.monotonic()
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(
                self.words(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=outside()
            )
        wait_until(self.ready, f"up is ready: {self.said()}")
        return time.monotonic() - began

    @property
    def output(self) -> Path:
        """What it says."""
        return self.data.with_name(f"{self.data.name}.out")

    def said(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    @property
    def state(self) -> UpState:
        """What it says about itself."""
        state = read_state(self.data)
        assert state is not None
        return state

    def ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said()
        state = read_state(self.data)
        return state is not None and state.pid == self.process.pid and state.ready

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_S_MAX)

    def end(self) -> None:
        """Whatever the test has left."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(STOP_S_MAX)

    def refused(self, **ports: int) -> str:
        """Call it where it cannot start; the message on stderr."""
        done = call(self.words(**ports))
        assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stderr


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path / "data")
    yield made
    made.end()


def drystone(*words: str) -> subprocess.CompletedProcess[str]:
    """Another command."""
    return call([ENTRY_POINT, *words])


def pids(up: Up) -> dict[str, int]:
    """Of all parts."""
    return {name: child.pid for name, child in up.state.children.items()}


def gone(numbers: Any) -> bool:
    """None of them is a process any more."""
    return not any(psutil.pid_exists(number) for number in numbers)


def test_ctrl_c_stops_attempts_with_grace_and_the_next_up_runs_them_again_uncharged(
    up: Up, tmp_path: Path
) -> None:
    first_s = up.start()
    here = tmp_path / "attempts"
    here.mkdir()
    # It notes its number and its pid, tidies up when told to stop, and the second attempt ends.
    script = (
        f"cd {here}; echo $$ > pid-$DRYSTONE_ATTEMPT; "
        "trap 'echo tidied > tidy-$DRYSTONE_ATTEMPT; exit 0' TERM; "
        "[ -e tidy-1 ] || while :; do sleep 0.1; done; exit 0"
    )
    with Rest(f"http://127.0.0.1:{up.api_port}") as rest:
        done = rest.submit("done", "true")
        rest.ended(done)
        running = rest.submit("runs", "sh", "-c", script)
        wait_until((here / "pid-1").exists, "the attempt runs")
    processes = [*pids(up).values(), int((here / "pid-1").read_text())]
    began = time.monotonic()
    assert up.interrupt() == 0
    stop_s = time.monotonic() - began
    assert (here / "tidy-1").exists(), "it had no grace"
    wait_until(lambda: gone(processes), "every process is gone", 5)
    second_s = up.start()
    with Rest(f"http://127.0.0.1:{up.api_port}", rest.team) as rest:
        task = rest.ended(running)
        # No failure was allowed, so nothing of this was charged to the user.
        assert (task["phase"], task["spec"]["retries"]["failures"]) == ("SUCCEEDED", 0)
        # Nor was it offered again to the keeper that was leaving.
        stopped, last = (attempt["ending"] for attempt in rest.attempts(running))
        assert (stopped["kind"], stopped["stop_cause"]) == ("stopped", "shut_down")
        assert (last["kind"], last["exit_code"]) == ("exited", 0)
        assert rest.task(done)["phase"] == "SUCCEEDED"
        assert {path.name for path in here.glob("pid-*")} == {"pid-1", "pid-2"}
    assert up.interrupt() == 0
    print(f"ready after {first_s:.1f} s, stopped after {stop_s:.1f} s, again {second_s:.1f} s")


def test_after_a_kill_of_up_the_next_one_runs_the_task_again_one_attempt_at_a_time(
    up: Up, tmp_path: Path
) -> None:
    up.start()
    here = tmp_path / "attempts"
    here.mkdir()
    # A folder is made once; the first attempt gives it back when told to stop, the second at once.
    script = (
        f"cd {here}; mkdir held || touch doubled; touch in-$DRYSTONE_ATTEMPT; "
        "trap 'rmdir held; exit 0' TERM; "
        "[ -e in-2 ] || while :; do sleep 0.1; done; rmdir held"
    )
    with Rest(f"http://127.0.0.1:{up.api_port}") as rest:
        key = rest.submit("runs", "sh", "-c", script)
        wait_until((here / "in-1").exists, "the attempt runs")
        wait_until(lambda: rest.attempts(key)[0]["started_at"], "its start is told while it runs")
    assert up.process is not None
    up.process.kill()
    up.process.wait(STOP_S_MAX)
    up.start()
    with Rest(f"http://127.0.0.1:{up.api_port}", rest.team) as rest:
        assert rest.ended(key)["phase"] == "SUCCEEDED"
        first, second = (attempt["ending"] for attempt in rest.attempts(key))
    assert (first["kind"], first["stop_cause"]) == ("stopped", "shut_down")
    assert (second["kind"], second["exit_code"]) == ("exited", 0)
    assert {path.name for path in here.iterdir()} == {"in-1", "in-2"}


def kill_and_see_another(up: Up, name: str) -> None:
    """SIGKILL of one part, until its successor runs."""
    before = pids(up)[name]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: pids(up).get(name, before) != before, f"another {name} runs")


def test_what_is_killed_is_started_again_and_tasks_go_on(up: Up) -> None:
    up.start()
    with Rest(f"http://127.0.0.1:{up.api_port}") as rest:
        for name in ("worker", "api", "agent", "temporal"):
            kill_and_see_another(up, name)

        def accepted() -> bool:
            body = {"team": rest.team, "id": "after", "command": ["true"]}
            try:
                return rest.http.post("/v1/tasks", json=body).is_success
            except httpx.TransportError:
                return False

        wait_until(accepted, "a task is accepted again")
        assert rest.ended(f"{rest.team}/after")["phase"] == "SUCCEEDED"
    assert set(pids(up)) == PARTS


def test_down_and_status_speak_of_the_same_up(up: Up) -> None:
    up.start()
    status = drystone("status", "--data", str(up.data), "--json")
    told = json.loads(status.stdout)
    assert (status.returncode, told["up"], told["api"]) == (0, True, "ready")
    assert set(told["children"]) == PARTS
    refused = up.refused()
    assert re.search(r"in use by another `drystone up` \(process \d+, http://", refused), refused
    processes = list(pids(up).values())
    assert drystone("down", "--data", str(up.data)).returncode == 0
    wait_until(lambda: gone(processes), "every process is gone", 5)
    for command in ("down", "status"):
        again = drystone(command, "--data", str(up.data))
        assert again.returncode == 1
        assert f"nothing is up on {up.data}" in again.stderr


@pytest.mark.parametrize("name", ["api", "temporal", "ui"])
def test_a_port_in_use_is_named_with_the_option_to_change_it(up: Up, name: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = up.refused(**{name: port})
    assert f"port {port} is in use: give another one with --{name}-port" in told


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    assert "is missing" in Up(tmp_path / "no" / "such" / "parent").refused()
    (tmp_path / "file").write_text("")
    assert "is not a folder" in Up(tmp_path / "file").refused()
    assert "is not a folder" in Up(tmp_path / "file" / "below").refused()
    assert "cannot be" in Up(Path("/proc/drystone")).refused()
    if os.geteuid() != 0:  # root may write anywhere
        (tmp_path / "locked").mkdir(mode=0o555)
        assert "cannot be written" in Up(tmp_path / "locked").refused()
