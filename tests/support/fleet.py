"""A whole Drystone as real processes on loopback: started, killed and restarted one by one."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from runtime.temporal import dev_server_command

READY_S_MAX = 60
STOP_S_MAX = 60
STACK = ("temporal", "worker", "api", "agent", "keeper")


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(holds: Callable[[], bool], what: str, seconds: float = READY_S_MAX) -> None:
    """Ask again and again until it holds; an assertion names what never did."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


@dataclass
class Fleet:
    """One cluster `local` with one machine `m1` by default; more keepers by `add_keeper`."""

    folder: Path
    cpu: str = "64"
    memory: str = "64Gi"
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    temporal_port: int = field(default_factory=free_port)
    api_port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        module = [sys.executable, "-P", "-m"]
        agent = self.folder / "agent"
        self.commands = {
            "temporal": dev_server_command(
                db_path=self.folder / "temporal.db", port=self.temporal_port, ui_port=None
            ),
            "worker": [*module, "worker"],
            "api": [*module, "api"],
            "agent": [
                *module,
                "agent",
                *("--cluster", "local", "--folder", str(agent)),
                *("--temporal", self.temporal_address),
            ],
        }
        self.add_keeper("keeper", "m1")

    @property
    def temporal_address(self) -> str:
        """Host and port of the Temporal server."""
        return f"127.0.0.1:{self.temporal_port}"

    @property
    def url(self) -> str:
        """Where the REST API answers."""
        return f"http://127.0.0.1:{self.api_port}"

    def add_keeper(self, role: str, machine: str) -> None:
        """Describe one more machine (not started yet)."""
        self.commands[role] = [
            *(sys.executable, "-P", "-m", "keeper"),
            *("--folder", str(self.folder / role), "--cluster", "local", "--name", machine),
            *("--agent", f"unix:{self.folder / 'agent' / 'agent.sock'}"),
            *("--cpu", self.cpu, "--memory", self.memory),
        ]

    def environment(self) -> dict[str, str]:
        """What every process of ours is given."""
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("DRYSTONE_")},
            "DRYSTONE_DATA_DIR": str(self.folder),
            "DRYSTONE_TEMPORAL_ADDRESS": self.temporal_address,
            "DRYSTONE_API_PORT": str(self.api_port),
            **self.extra_environment,
        }

    def start(self, role: str) -> None:
        """Start one process; its output goes to a file of its own."""
        assert role not in self.running, role
        with (self.folder / f"{role}.log").open("ab") as log:
            self.running[role] = subprocess.Popen(
                self.commands[role],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                cwd=self.folder,
                start_new_session=True,
            )

    def kill(self, role: str) -> int:
        """SIGKILL, without a chance to say goodbye. Returns the pid that is no more."""
        process = self.running.pop(role)
        process.kill()
        process.wait()
        return process.pid

    def stop(self, role: str) -> int:
        """SIGTERM; the exit code."""
        process = self.running.pop(role)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{role} did not stop:\n{self.log(role)}") from None

    def start_all(self) -> None:
        """The stack in its order, until the API says ready and the machine is registered."""
        self.start("temporal")
        wait_until(self._temporal_listens, "Temporal listens")
        for role in self.commands:
            if role != "temporal":
                self.start(role)
        wait_until(self.ready, "the API is ready and the machine registered")

    def end(self) -> None:
        """Stop what still runs, however the test ended; the first complaint is raised last."""
        complaints: list[str] = []
        for role in reversed([r for r in self.commands if r in self.running]):
            try:
                self.stop(role)
            except AssertionError as complaint:
                complaints.append(str(complaint))
        assert not complaints, complaints

    def ready(self) -> bool:
        """True when the API answers and a machine can take work."""
        died = {r: p.returncode for r, p in self.running.items() if p.poll() is not None}
        assert not died, f"{died}\n" + "\n".join(self.log(role) for role in died)
        try:
            ready = httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
            machines = httpx.get(f"{self.url}/v1/machines", timeout=5)
        except httpx.HTTPError:
            return False
        keepers = sum(1 for role in self.running if role.startswith("keeper"))
        return ready and machines.is_success and len(machines.json()["items"]) >= keepers

    def log(self, role: str, lines: int = 40) -> str:
        """The last lines of a process's output."""
        text = (self.folder / f"{role}.log").read_text(errors="replace")
        return f"--- {role}\n" + "\n".join(text.splitlines()[-lines:])

    def _temporal_listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.temporal_port)) == 0
