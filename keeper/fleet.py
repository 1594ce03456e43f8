"""Many simulated machines in one process, each with its own keeper and its own link. For load
tests and demonstrations; nothing of them outlives the process.
"""

import asyncio
import csv
import random
import uuid
from pathlib import Path

from keeper.attempts import Keeper
from keeper.drivers.simulated import SimulatedDriver
from keeper.link import Link
from keeper.settings import Inventory, KeeperSettings, pairs, taints
from keeper.shell import Identity, KeeperShell

MACHINES_MAX = 20_000


def read_machines(path: Path) -> list[Inventory]:
    """A CSV file with the columns name, cpu, memory and, if wanted, gpu, disk, net, zone, rack,
    labels and taints (`key=value;key=value`), count (that many, named name-1, name-2, ...)."""
    machines: list[Inventory] = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            machines += _expanded(row)
            if len(machines) > MACHINES_MAX:
                raise ValueError(f"{path}: more than {MACHINES_MAX} machines")
    return machines


async def run_fleet(settings: KeeperSettings, machines: list[Inventory]) -> None:
    """Every machine dials the agent; until cancelled."""
    links = [_keeper(settings, machine).run() for machine in machines]
    await asyncio.gather(*links)


def _keeper(settings: KeeperSettings, machine: Inventory) -> Link:
    report = machine.report(uuid.uuid4().hex)
    identity = Identity(report, settings.token, settings.runtime.lease_s)
    shell = KeeperShell(identity, Keeper(), journal=None, folder=None)
    link = Link(settings.agent, shell, random.Random(report.instance))  # noqa: S311
    shell.driver = SimulatedDriver(shell.tell)
    shell.send = link.send
    return link


def _expanded(row: dict[str, str]) -> list[Inventory]:
    written = {name: row[name] for name in ("cpu", "memory", "disk", "net") if row.get(name)}
    inventory = Inventory.model_validate(
        {
            "name": row["name"],
            "capacity": {**written, "gpu": int(row.get("gpu") or 0)},
            "zone": row.get("zone") or "",
            "rack": row.get("rack") or "",
            "labels": pairs((row.get("labels") or "").split(";") if row.get("labels") else []),
            "taints": taints((row.get("taints") or "").split(";") if row.get("taints") else []),
        }
    )
    count = int(row.get("count") or 0)
    if count == 0:
        return [inventory]
    names = [f"{inventory.name}-{number}" for number in range(1, count + 1)]
    return [inventory.model_copy(update={"name": name}) for name in names]
