"""What a keeper is told at its start: its folder, its agent, its name, and what its machine has.

Flags win over the environment (`runtime.settings`), and what is given over what is found.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import BaseModel, ValidationError

from domain.constraint import Taint
from domain.machine import MachineReport
from domain.misfit import told
from domain.resources import Resources
from keeper.link import Address, read_address
from runtime.settings import VARIABLES, Settings

MIB = 1024 * 1024
TOKEN_VARIABLE = "DRYSTONE_KEEPER_TOKEN"  # noqa: S105 (the name of a variable)


class Inventory(BaseModel, frozen=True):
    """A machine as people describe it on a command line or in a file."""

    name: str
    capacity: Resources
    zone: str = ""
    rack: str = ""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()

    def report(self, instance: str) -> MachineReport:
        """As it is registered under this instance id."""
        return MachineReport(instance=instance, **self.model_dump())


@dataclass(frozen=True, slots=True)
class KeeperSettings:
    """One keeper process."""

    runtime: Settings
    folder: Path
    agent: Address
    cluster: str
    machine: Inventory
    token: str
    shutdown_grace_s: float
    forget_wait_s: float
    simulated: bool
    machines_file: Path | None


def read_settings(words: Sequence[str], environment: Mapping[str, str]) -> KeeperSettings:
    """The settings, or an exit with a message that names what is wrong."""
    try:
        runtime = Settings()
    except ValidationError as error:
        sys.exit(f"drystone keeper: {told(error, VARIABLES)}")
    parser = _parser(runtime)
    given = parser.parse_args(words)
    folder: Path = given.folder.expanduser().absolute()
    try:
        return KeeperSettings(
            runtime=runtime,
            folder=folder,
            agent=read_address(given.agent),
            cluster=given.cluster,
            machine=_inventory(given),
            token=given.token or environment.get(TOKEN_VARIABLE, ""),
            shutdown_grace_s=given.shutdown_grace,
            forget_wait_s=given.forget_wait,
            simulated=given.simulated,
            machines_file=given.machines,
        )
    except ValidationError as error:
        parser.error(told(error))
    except ValueError as error:
        parser.error(str(error))


def pairs(written: Sequence[str]) -> dict[str, str]:
    """`key=value` words; a word without a value has an empty one."""
    split = [word.partition("=") for word in written]
    return {key: value for key, _, value in split}


def taints(written: Sequence[str]) -> tuple[Taint, ...]:
    """`key=value` words."""
    return tuple(Taint(key=key, value=value) for key, value in pairs(written).items())


def _parser(runtime: Settings) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="drystone keeper", description="Parent of all attempts of one machine."
    )
    add = parser.add_argument
    add("--folder", type=Path, default=runtime.data_dir / "keeper", help="what it owns on disk")
    add("--agent", default=runtime.keeper_agent_url, help="unix:/PATH, http://... or https://...")
    add("--cluster", default=runtime.cluster)
    add("--name", default=runtime.machine, help="of the machine, unique in its cluster")
    add("--cpu", help="cores, or 500m; found out when not given")
    add("--memory", help="16Gi; found out when not given")
    add("--disk", help="100Gi; what is free in the folder when not given")
    add("--gpu", type=int, default=0)
    add("--net", help="Mbit/s")
    add("--extra", action="append", default=[], metavar="NAME=AMOUNT")
    add("--zone", default="")
    add("--rack", default="")
    add("--label", action="append", default=[], metavar="KEY=VALUE")
    add("--taint", action="append", default=[], metavar="KEY[=VALUE]")
    add("--token", default="", help=f"better given as {TOKEN_VARIABLE}")
    add("--shutdown-grace", type=float, default=30.0, metavar="SECONDS")
    add("--forget-wait", type=float, default=10.0, metavar="SECONDS")
    add("--simulated", action="store_true", help="attempts only pretend to run")
    add("--machines", type=Path, metavar="CSV", help="many simulated machines in one process")
    return parser


def _inventory(given: argparse.Namespace) -> Inventory:
    asked: dict[str, object] = {"gpu": given.gpu}
    asked["extra"] = {name: int(amount) for name, amount in pairs(given.extra).items()}
    if given.cpu is None:
        asked["cpu_milli"] = len(os.sched_getaffinity(0)) * 1_000
    else:
        asked["cpu"] = given.cpu
    if given.memory is None:
        asked["memory_mib"] = psutil.virtual_memory().total // MIB
    else:
        asked["memory"] = given.memory
    if given.disk is None:
        asked["disk_mib"] = _free_mib(given.folder.expanduser().absolute())
    else:
        asked["disk"] = given.disk
    if given.net is not None:
        asked["net"] = given.net
    inventory = Inventory(
        name=given.name,
        capacity=Resources.model_validate(asked),
        zone=given.zone,
        rack=given.rack,
        labels=pairs(given.label),
        taints=taints(given.taint),
    )
    # The instance is not known yet; the rest must fit now, while somebody reads the message.
    inventory.report("")
    return inventory


def _free_mib(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return int(psutil.disk_usage(str(folder)).free // MIB)
