"""Thousands of machines in the agent's own process: `drystone agent --simulate machines.csv`.

Attempts last as long as their specification says and end as it says. There are no processes, so
nothing is frozen, and when this process ends its attempts are lost like those of a dead keeper.
"""

import asyncio
import csv
import gzip
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from agent.admission import Connected, Said
from agent.endings import stopped
from agent.state import What
from domain.attempt import Ending, EndKind, StopCause, Usage
from domain.constraint import Taint, TaintEffect
from domain.machine import MachineReport
from domain.protocol import (
    AgentMessage,
    AttemptEnded,
    AttemptStarted,
    Forget,
    KeeperGrant,
    KeeperHello,
    LeaseQuestion,
    StartAttempt,
    StopAttempt,
)
from domain.reasons import Reason
from domain.resources import Resources
from domain.task import Simulated, TaskSpec

MACHINES_MAX = 200_000
QUESTIONS_PER_LEASE = 4
HELLOS_PER_TURN_MAX = 200
"""So many at once; then other events get their turn."""

_AMOUNTS = ("cpu_milli", "memory_mib", "gpu", "disk_mib", "net_mbps")
_RESERVED = ("cpu_milli", "memory_mib", "disk_mib", "net_mbps")
COLUMNS = frozenset(
    {"id", "cluster", "zone", "rack", "gpu_model", "labels", "taints", "cordoned"}
    | {"price_per_hour"}
    | set(_AMOUNTS)
    | {f"reserved_{name}" for name in _RESERVED}
)


class MachinesFileError(Exception):
    """The file of machines cannot be used; the text says where and why."""


# --- the file -------------------------------------------------------------------------------------


def read_machines(path: Path, cluster: str, instance: str) -> list[MachineReport]:
    """The machines of this cluster: rows that name it, or none. Reserved room counts as used."""
    try:
        with _opened(path) as file:
            reports = list(_reports(path, csv.DictReader(file), cluster, instance))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MachinesFileError(f"{path}: {error}") from error
    if not reports:
        raise MachinesFileError(f"{path}: no machine of cluster {cluster}")
    if len(reports) > MACHINES_MAX:
        raise MachinesFileError(f"{path}: more than {MACHINES_MAX} machines")
    names = {report.name for report in reports}
    if len(names) < len(reports):
        twice = len(reports) - len(names)
        raise MachinesFileError(f"{path}: {twice} machines have the id of another")
    return reports


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8")
    return path.open(newline="", encoding="utf-8")


def _reports(
    path: Path, rows: "csv.DictReader[str]", cluster: str, instance: str
) -> Iterator[MachineReport]:
    unknown = sorted(set(rows.fieldnames or ()) - COLUMNS)
    if unknown or "id" not in (rows.fieldnames or ()):
        raise MachinesFileError(f"{path}: unknown columns: {', '.join(unknown) or 'no id'}")
    for row in rows:
        if (row.get("cluster") or cluster) != cluster or (row.get("cordoned") or "0") == "1":
            continue
        try:
            yield _report(row, instance)
        except (ValidationError, ValueError) as error:
            raise MachinesFileError(f"{path}, line {rows.line_num}: {error}") from error


def _report(row: dict[str, str], instance: str) -> MachineReport:
    amounts: dict[str, Any] = {name: int(row.get(name) or 0) for name in _AMOUNTS}
    for name in _RESERVED:
        amounts[name] = max(0, amounts[name] - int(row.get(f"reserved_{name}") or 0))
    labels = dict(_pairs(row.get("labels") or ""))
    if row.get("gpu_model"):
        labels["gpu_model"] = row["gpu_model"]
    return MachineReport(
        name=row["id"],
        instance=instance,
        capacity=Resources(**amounts),
        zone=row.get("zone") or "",
        rack=row.get("rack") or "",
        labels=labels,
        taints=tuple(_taint(key, value) for key, value in _pairs(row.get("taints") or "")),
    )


def _pairs(written: str) -> Iterator[tuple[str, str]]:
    for word in filter(None, written.split(";")):
        key, _, value = word.partition("=")
        yield key.strip(), value.strip()


def _taint(key: str, written: str) -> Taint:
    value, _, effect = written.partition(":")
    return Taint(key=key, value=value, effect=TaintEffect(effect or TaintEffect.NO_SCHEDULE))


# --- the fleet ------------------------------------------------------------------------------------


def plan(spec: TaskSpec) -> tuple[int, Ending]:
    """After how many milliseconds an attempt ends by itself, and how."""
    simulated = spec.simulated or Simulated()
    lasts_ms = simulated.duration_ms
    if spec.run_timeout_s is not None and spec.run_timeout_s * 1_000 < lasts_ms:
        return spec.run_timeout_s * 1_000, stopped(StopCause.RUN_TIMEOUT)
    code = simulated.exit_code
    reason = Reason.NONZERO_EXIT if code else None
    usage = Usage(cpu_ms=lasts_ms, wall_ms=lasts_ms)
    return lasts_ms, Ending(kind=EndKind.EXITED, exit_code=code, reason=reason, usage=usage)


@dataclass(slots=True)
class _Played:
    """An attempt that runs, in so far as a timer stands for it."""

    started_at: datetime
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class _Machine:
    report: MachineReport
    number: int
    leased: bool = False
    live: dict[str, _Played] = field(default_factory=dict)
    over: dict[str, AttemptEnded] = field(default_factory=dict)


class SimulatedFleet:
    """All machines of a file. See `agent.engine.Keepers`."""

    def __init__(
        self, reports: list[MachineReport], lease_s: float, tell: Callable[[What], None]
    ) -> None:
        self._machines = {
            report.name: _Machine(report, -number) for number, report in enumerate(reports, start=1)
        }
        self._lease_s = lease_s
        self._tell = tell
        self._asked = 0

    async def run(self) -> None:
        """Say hello for all, then ask for leases in turn, until cancelled."""
        for count, machine in enumerate(self._machines.values(), start=1):
            hello = KeeperHello(machine=machine.report, epoch=0, live=())
            self._tell(Connected(hello, machine.number))
            self._ask(machine)
            if count % HELLOS_PER_TURN_MAX == 0:
                await asyncio.sleep(0.01)
        pause_s = self._lease_s / QUESTIONS_PER_LEASE
        turns = max(1, math.ceil(len(self._machines) / HELLOS_PER_TURN_MAX))
        while True:
            machines = list(self._machines.values())
            for turn in range(turns):
                await asyncio.sleep(pause_s / turns)
                for machine in machines[turn::turns]:
                    self._ask(machine)

    def send(self, machine: str, message: AgentMessage) -> None:
        """What that machine's keeper would do with it."""
        there = self._machines.get(machine)
        if there is None:
            return
        match message:
            case KeeperGrant(closed=closed):
                there.leased = True
                for attempt in closed:
                    self._stop(there, attempt, StopCause.SUPERSEDED)
            case StartAttempt():
                self._start(there, message)
            case StopAttempt(attempt=attempt, cause=cause):
                self._stop(there, attempt, cause)
            case Forget(attempts=attempts):
                for attempt in attempts:
                    there.over.pop(attempt, None)
            case _:
                pass

    def _ask(self, machine: _Machine) -> None:
        self._asked += 1
        question = LeaseQuestion(question=self._asked, epoch=0)
        self._say(machine, question)

    def _start(self, machine: _Machine, start: StartAttempt) -> None:
        if start.attempt in machine.live or start.attempt in machine.over or not machine.leased:
            return
        lasts_ms, ending = plan(start.spec)
        loop = asyncio.get_running_loop()
        at = datetime.now(UTC)
        timer = loop.call_later(lasts_ms / 1_000, self._end, machine, start.attempt, ending)
        machine.live[start.attempt] = _Played(at, timer)
        self._say(machine, AttemptStarted(attempt=start.attempt, at=at))

    def _stop(self, machine: _Machine, attempt: str, cause: StopCause) -> None:
        if attempt not in machine.over:
            self._end(machine, attempt, stopped(cause))

    def _end(self, machine: _Machine, attempt: str, ending: Ending) -> None:
        played = machine.live.pop(attempt, None)
        if played is not None:
            played.timer.cancel()
        said = AttemptEnded(
            attempt=attempt,
            ending=ending,
            started_at=None if played is None else played.started_at,
            at=datetime.now(UTC),
        )
        machine.over[attempt] = said
        self._say(machine, said)

    def _say(
        self, machine: _Machine, message: LeaseQuestion | AttemptStarted | AttemptEnded
    ) -> None:
        self._tell(Said(machine.report.name, machine.number, message))
