"""A ledger made for a benchmark: a database of its own, machines, and rows that wait.

Everything goes in through the ledger's own transactions.
"""

import random
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine, text
from sqlalchemy.engine import URL, make_url

from domain.claims import Enqueue
from domain.constraint import Constraints
from domain.ids import partition_of
from domain.machine import MachineReport
from domain.protocol import Heartbeat, Register
from domain.resources import Resources
from domain.task import TaskSpec
from store.clusters import begin_grant, grant_answered, heartbeat, register
from store.ledger import OPERATIONS_PER_TRANSACTION_MAX, apply
from store.schema import migrate
from store.session import open_engine, transaction

CLUSTER_MACHINES = 2_000
REPORTS_PER_HEARTBEAT = 100
RACK_MACHINES = 40
ZONES = 20
SHAPES = 50
TEAMS_PER_PARTITION = 8
MACHINE_SIZES = ((64_000, 262_144), (96_000, 393_216), (96_000, 786_432), (128_000, 524_288))
"""cpu_milli and memory_mib."""


@contextmanager
def ledger_database(url: str) -> Iterator[str]:
    """The URL of an empty database, made beside the one that is named, gone after the block.

    SQLite: a file in the same folder (without a path, in a temporary one). PostgreSQL: another
    database on the same server, for which the user must be allowed to create databases.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        yield from _on_server(parsed)
        return
    beside = Path(parsed.database).absolute().parent if parsed.database else None
    with tempfile.TemporaryDirectory(prefix="drystone-bench-", dir=beside) as folder:
        yield f"sqlite:///{folder}/ledger.db"


def _on_server(url: URL) -> Iterator[str]:
    name = f"drystone_bench_{secrets.token_hex(6)}"
    server = open_engine(url.render_as_string(hide_password=False)).execution_options(
        isolation_level="AUTOCOMMIT"
    )
    try:
        with server.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        try:
            yield url.set(database=name).render_as_string(hide_password=False)
        finally:
            with server.connect() as connection:
                connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    finally:
        server.dispose()


class GeneratedLedger:
    """Machines and waiting tasks; the same for equal numbers and seed."""

    def __init__(self, url: str, partitions: int, seed: int) -> None:
        self.engine: Engine = open_engine(url)
        migrate(self.engine)
        self._partitions = partitions
        self._teams = _teams(partitions)
        self._dice = random.Random(seed)
        self._kinds = [_kind(self._dice, number) for number in range(SHAPES)]
        self._tasks = 0

    def add_machines(self, count: int) -> None:
        """So many, in reachable clusters."""
        reports = [_machine(number) for number in range(count)]
        for first in range(0, count, CLUSTER_MACHINES):
            self._cluster(f"c{first // CLUSTER_MACHINES}", reports[first:][:CLUSTER_MACHINES])

    def _cluster(self, name: str, reports: list[MachineReport]) -> None:
        now = datetime.now(UTC)
        with transaction(self.engine) as connection:
            register(connection, name, Register(instance="bench"), now)
            epoch = begin_grant(connection, name, now).epoch
            grant_answered(connection, name, epoch, (), now)
        for seq, first in enumerate(range(0, len(reports), REPORTS_PER_HEARTBEAT), start=1):
            some = tuple(reports[first : first + REPORTS_PER_HEARTBEAT])
            beat = Heartbeat(instance="bench", epoch=epoch, seq=seq, machines=some)
            with transaction(self.engine) as connection:
                heartbeat(connection, name, beat, now, reachable=True)

    def add_tasks(self, count: int) -> None:
        """So many more wait, evenly over the partitions."""
        for first in range(0, count, OPERATIONS_PER_TRANSACTION_MAX):
            now = datetime.now(UTC)
            some = range(first, min(count, first + OPERATIONS_PER_TRANSACTION_MAX))
            asked = [Enqueue(spec=self._spec(), digest="bench", at=now) for _ in some]
            with transaction(self.engine) as connection:
                apply(connection, asked, partitions=self._partitions, now=now)

    def _spec(self) -> TaskSpec:
        self._tasks += 1
        resources, constraints = self._kinds[self._dice.randrange(SHAPES)]
        return TaskSpec(
            team=self._teams[self._tasks % len(self._teams)],
            id=f"t{self._tasks:08}",
            command=("/bin/true",),
            resources=resources,
            constraints=constraints,
        )


def _teams(partitions: int) -> list[str]:
    """The same number for each partition, in turn."""
    found: dict[int, list[str]] = {number: [] for number in range(partitions)}
    number = 0
    while any(len(teams) < TEAMS_PER_PARTITION for teams in found.values()):
        team = f"team{number}"
        mine = found[partition_of(team, partitions)]
        if len(mine) < TEAMS_PER_PARTITION:
            mine.append(team)
        number += 1
    return [team for some in zip(*found.values(), strict=True) for team in some]


def _machine(number: int) -> MachineReport:
    cpu_milli, memory_mib = MACHINE_SIZES[number % len(MACHINE_SIZES)]
    return MachineReport(
        name=f"m{number:06}",
        instance="bench",
        zone=f"z{number // RACK_MACHINES % ZONES}",
        rack=f"r{number // RACK_MACHINES}",
        labels={"disk": "ssd" if number % 3 else "hdd"},
        capacity=Resources(cpu_milli=cpu_milli, memory_mib=memory_mib, disk_mib=1_000_000),
    )


def _kind(dice: random.Random, number: int) -> tuple[Resources, Constraints]:
    """Three in ten ask for a zone, two in ten belong to a service."""
    rules: dict[str, object] = {}
    if dice.random() < 0.3:
        rules["zones"] = (f"z{dice.randrange(ZONES)}",)
    if dice.random() < 0.2:
        rules["service"] = f"s{number}"
    cpu_milli = dice.randrange(100, 1_000)
    resources = Resources(cpu_milli=cpu_milli, memory_mib=cpu_milli * dice.randrange(1, 6))
    return resources, Constraints.model_validate(rules)
