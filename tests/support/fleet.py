"""A whole Drystone as real processes on loopback: started, killed and restarted one by one.

Every process of ours is a service of docker-compose.yml: its command through the console script,
its environment with addresses, folder and database put in place of the containers' own.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from runtime.temporal import dev_server_command
from tests.support.compose import service

READY_S_MAX = 60
STOP_S_MAX = 60
POLL_S = 5
"""How soon a poll that finds nothing is answered: by default a minute, and after an outage an agent
waits for an answer before it says anything."""
LOOPBACK = "127.0.0.1"
ENTRY_POINT = str(Path(sys.executable).with_name("drystone"))
"""The image's ENTRYPOINT."""
_PR_SET_PDEATHSIG = 1


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def wait_until(holds: Callable[[], bool], what: str, seconds: float = READY_S_MAX) -> None:
    """Ask again and again until it holds; an assertion names what never did."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


@dataclass
class Fleet:
    """One cluster `local` with one machine `m1` by default; more by `add_agent`, `add_keeper`.

    The ledger is on SQLite in the folder unless `database_url` names another database.
    """

    folder: Path
    cpu: str = "64"
    memory: str = "64Gi"
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    database_url: str = ""
    temporal_port: int = field(default_factory=free_port)
    api_port: int = field(default_factory=free_port)
    agent_ports: dict[str, int] = field(default_factory=dict)
    """By the agent's role."""
    machines: dict[str, str] = field(default_factory=dict)
    """By the keeper's role: `cluster/machine`."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.database_url = self.database_url or f"sqlite:///{self.folder / 'ledger.db'}"
        self.commands["temporal"] = dev_server_command(
            db_path=self.folder / "temporal.db",
            port=self.temporal_port,
            ui_port=None,
            extra=["--dynamic-config-value", f'matching.longPollExpirationInterval="{POLL_S}s"'],
        )
        self.environments["temporal"] = {}
        self._add("worker", "worker", {"DATABASE_URL": self.database_url})
        self._add(
            "api",
            "api",
            {"DATABASE_URL": self.database_url, "API_HOST": LOOPBACK, "API_PORT": self.api_port},
        )
        self.add_agent("agent", "local")
        self.add_keeper("keeper", "m1")

    @property
    def temporal_address(self) -> str:
        """Host and port of the Temporal server."""
        return f"{LOOPBACK}:{self.temporal_port}"

    @property
    def url(self) -> str:
        """Where the REST API answers."""
        return f"http://{LOOPBACK}:{self.api_port}"

    def add_agent(self, role: str, cluster: str, words: Sequence[str] = ()) -> None:
        """Describe the agent of one more cluster (not started yet)."""
        port = self.agent_ports[role] = free_port()
        changed = {"AGENT_HOST": LOOPBACK, "AGENT_PORT": port, "CLUSTER": cluster}
        self._add(role, "agent", {**changed, "AGENT_URL": f"http://{LOOPBACK}:{port}"}, words)

    def add_keeper(
        self, role: str, machine: str, agent: str = "agent", words: Sequence[str] = ()
    ) -> None:
        """Describe one more machine (not started yet) of the cluster of this agent."""
        cluster = self.environments[agent]["DRYSTONE_CLUSTER"]
        url = f"http://{LOOPBACK}:{self.agent_ports[agent]}"
        self.machines[role] = f"{cluster}/{machine}"
        self._add(
            role,
            "keeper",
            {"CLUSTER": cluster, "MACHINE": machine, "KEEPER_AGENT_URL": url},
            ["--cpu", self.cpu, "--memory", self.memory, *words],
        )

    def simulate(self, machines: Path, agent: str = "agent") -> None:
        """The machines of this agent only pretend to run tasks; it has no keepers."""
        self.commands[agent] += ["--simulate", str(machines)]
        cluster = self.environments[agent]["DRYSTONE_CLUSTER"]
        for role, machine in [*self.machines.items()]:
            if machine.startswith(f"{cluster}/"):
                del self.machines[role], self.commands[role], self.environments[role]

    def _add(
        self, role: str, name: str, changed: Mapping[str, object], words: Sequence[str] = ()
    ) -> None:
        described = service(name)
        temporal = {"TEMPORAL_ADDRESS": self.temporal_address}
        here = {**temporal, **changed, "DATA_DIR": self.folder / "data" / role}
        self.commands[role] = [ENTRY_POINT, *described.command, *words]
        self.environments[role] = {
            **described.environment,
            **{f"DRYSTONE_{variable}": str(value) for variable, value in here.items()},
        }

    def environment(self, role: str) -> dict[str, str]:
        """What this process is given."""
        outside = {k: v for k, v in os.environ.items() if not k.startswith("DRYSTONE_")}
        return {**outside, **self.environments[role], **self.extra_environment}

    def start(self, role: str) -> None:
        """Start one process; its output goes to a file of its own."""
        assert role not in self.running, role
        with (self.folder / f"{role}.log").open("ab") as log:
            self.running[role] = subprocess.Popen(
                self.commands[role],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(role),
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=_end_with_parent(),  # noqa: PLW1509 - one system call, no lock in it
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
        """The stack in its order, until the API says ready and the machines are registered."""
        self.start("temporal")
        wait_until(self._temporal_listens, "Temporal listens")
        for role in self.commands:
            if role != "temporal":
                self.start(role)
        wait_until(self.ready, "the API is ready and the machines are registered")

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
        """True when the API answers and every machine whose keeper runs can take work."""
        died = {r: p.returncode for r, p in self.running.items() if p.poll() is not None}
        assert not died, f"{died}\n" + "\n".join(self.log(role) for role in died)
        try:
            ready = httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
            answer = httpx.get(f"{self.url}/v1/machines", timeout=5)
        except httpx.HTTPError:
            return False
        there = answer.json()["items"] if answer.is_success else []
        usable = {f"{m['cluster']}/{m['name']}" for m in there if m["reachable"]}
        wanted = {machine for role, machine in self.machines.items() if role in self.running}
        return ready and wanted <= usable

    def log(self, role: str, lines: int = 40) -> str:
        """The last lines of a process's output."""
        text = (self.folder / f"{role}.log").read_text(errors="replace")
        return f"--- {role}\n" + "\n".join(text.splitlines()[-lines:])

    def _temporal_listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((LOOPBACK, self.temporal_port)) == 0


def _end_with_parent() -> Callable[[], None]:
    """A session that is killed outright must not leave its processes behind."""
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))

    return ask
