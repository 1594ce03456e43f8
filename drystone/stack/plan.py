"""What `drystone up` runs: settings, addresses, command lines. Decides no order, starts nothing."""

import os
import re
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from domain.ids import NAME_CHARS_MAX, Name
from domain.misfit import given, told
from domain.resources import Resources
from runtime.settings import Settings, StoreSettings
from runtime.temporal import dev_server_command

LOOPBACK = "127.0.0.1"
PORT_MAX = 65_535
FORGET_WAIT_S = 3
"""Here agent and keeper mostly end together; what is not said then is said at the next `up`."""


class PortInUseError(Exception):
    """Somebody listens there already; the text names the port and the option to change it."""


class WishError(Exception):
    """An option that cannot be meant so; the text names it, and what is allowed."""


class _Named(BaseModel):
    machine: Name


@dataclass(frozen=True)
class Wish:
    """What the user asked for on the command line; None = the default."""

    data: Path | None = None
    api_port: int = 8080
    temporal_port: int = 7233
    ui_port: int = 8233
    agent_port: int | None = None
    cpu: str | None = None
    memory: str | None = None
    machine: str | None = None


@dataclass(frozen=True)
class Plan:
    """Everything that is known before anything is started."""

    wish: Wish
    folder: Path
    settings: Settings
    commands: dict[str, list[str]]
    """In the order of starting; the Temporal server first."""

    @property
    def ui_url(self) -> str:
        """The Web UI of the Temporal server."""
        return f"http://{LOOPBACK}:{self.settings.temporal_ui_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What every process of ours is given."""
        return {**os.environ, **self.settings.environment()}


def plan(wish: Wish) -> Plan:
    """Settings and command lines for this wish; WishError names the option that does not fit."""
    check_wish(wish)
    agent_port = wish.agent_port or free_port()
    settings = Settings(
        data_dir=wish.data or StoreSettings().data_dir,
        temporal_address=f"{LOOPBACK}:{wish.temporal_port}",
        temporal_ui_port=wish.ui_port,
        api_host=LOOPBACK,
        api_port=wish.api_port,
        api_url=f"http://{LOOPBACK}:{wish.api_port}",
        machine=wish.machine or legal_name(socket.gethostname()),
        agent_host=LOOPBACK,
        agent_port=agent_port,
        agent_url=f"http://{LOOPBACK}:{agent_port}",
        keeper_agent_url=f"http://{LOOPBACK}:{agent_port}",
    )
    return Plan(wish, settings.data_dir, settings, _commands(wish, settings))


def check_wish(wish: Wish) -> None:
    """WishError for what only a process started much later would refuse."""
    for option, port in _ports(wish):
        if not 1 <= port <= PORT_MAX:
            raise WishError(f"{option}: must be a port from 1 to {PORT_MAX}, not {port}")
    for option, name, written in (("--cpu", "cpu", wish.cpu), ("--memory", "memory", wish.memory)):
        if written is None:
            continue
        try:
            offered = Resources.model_validate({name: written})
        except ValidationError as error:
            raise WishError(f"{option}: {told(error).removeprefix(f'{name}: ')}") from None
        if not any(offered.vector()):
            raise WishError(f"{option}: must be more than 0, not {given(written)}")
    try:
        _Named(machine=wish.machine or "machine")
    except ValidationError as error:
        raise WishError(told(error, {"machine": "--machine"})) from None


def _commands(wish: Wish, settings: Settings) -> dict[str, list[str]]:
    ours = [sys.executable, "-P", "-m"]
    folder = settings.data_dir
    size = [f"--cpu={wish.cpu}"] if wish.cpu else []
    size += [f"--memory={wish.memory}"] if wish.memory else []
    return {
        "temporal": dev_server_command(
            db_path=folder / "temporal.db", port=wish.temporal_port, ui_port=wish.ui_port
        ),
        "worker": [*ours, "worker"],
        "api": [*ours, "api"],
        "agent": [*ours, "agent", "--folder", str(folder / "agent")],
        "keeper": [
            *ours,
            "keeper",
            *("--folder", str(folder / "keeper"), f"--forget-wait={FORGET_WAIT_S}", *size),
        ],
    }


def legal_name(written: str) -> str:
    """A machine's name made of the name of this computer."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", written)[:NAME_CHARS_MAX].strip("-._")
    return kept or "machine"


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def check_ports(wish: Wish) -> None:
    """PortInUseError for the first port that is taken."""
    ports = _ports(wish)
    for place, (option, port) in enumerate(ports):
        twice = next((other for other, same in ports[:place] if same == port), None)
        if twice is not None:
            raise PortInUseError(f"{twice} and {option} are the same port, {port}")
        if not is_free(port):
            raise PortInUseError(f"port {port} is in use: give another one with {option}")


def _ports(wish: Wish) -> list[tuple[str, int]]:
    named = {
        "--api-port": wish.api_port,
        "--temporal-port": wish.temporal_port,
        "--ui-port": wish.ui_port,
        "--agent-port": wish.agent_port,
    }
    return [(option, port) for option, port in named.items() if port is not None]


def is_free(port: int) -> bool:
    """True when a server could listen on this loopback port."""
    with socket.socket() as probe:
        # Servers set this too: without it a port just left by one looks taken for a minute.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
