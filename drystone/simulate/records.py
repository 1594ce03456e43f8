"""What a simulation reads and writes, as plain values. Knows neither files nor the engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from domain.constraint import Constraints
from domain.priority import Band

DEVICE_MILLI = 1_000
"""Thousandths of a whole GPU device."""


class Amounts(NamedTuple):
    """Quantities in base units, in the order of `domain.resources.COLUMNS`."""

    cpu_milli: int = 0
    memory_mib: int = 0
    gpu: int = 0
    disk_mib: int = 0
    net_mbps: int = 0


NOTHING = Amounts()
NO_RULES = Constraints()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRow:
    """A machine of the fleet, there from the first moment to the last."""

    id: str
    cluster: str = "sim"
    zone: str = ""
    rack: str = ""
    capacity: Amounts
    reserved: Amounts = NOTHING
    """In use by others for good."""
    gpu_model: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str], ...] = ()
    cordoned: bool = False
    price_per_hour: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """What a task asks for; equal lines of a file share one object."""

    asks: Amounts
    gpu_milli: int = 0
    """Share of one device, 1 to 999; then `asks.gpu` is 0. 0 = no share."""
    gpu_models: tuple[str, ...] = ()
    team: str = "default"
    band: Band = Band.NORMAL
    clusters: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    """Every one must be borne by the machine."""
    tolerations: tuple[tuple[str, str | None], ...] = ()
    """Taint key and value; the value None tolerates every one."""
    service: str = ""
    max_per_machine: int = 0
    """0 = no limit."""
    rules: Constraints = NO_RULES
    """The rest of what it may ask: conditions on labels, and rules between tasks."""

    @property
    def devices(self) -> int:
        """How many GPU devices it touches."""
        return 1 if self.gpu_milli else self.asks.gpu

    @property
    def milli_per_device(self) -> int:
        """How much of each of them."""
        return self.gpu_milli or DEVICE_MILLI

    @property
    def gpu_total_milli(self) -> int:
        """How much of all of them."""
        return self.gpu_milli + self.asks.gpu * DEVICE_MILLI


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of the stream. Times None: it arrives in its place of the file and never leaves."""

    id: str
    demand: Demand
    submit_ms: int | None = None
    duration_ms: int | None = None
    """None = runs for ever."""


class Outcome(StrEnum):
    """How it stands with a task, or stood with one attempt, at the end of the run."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PREEMPTED = "preempted"
    UNPLACED = "unplaced"
    """No machine had room while the run lasted."""
    IMPOSSIBLE = "impossible"
    """No machine could hold it even if nothing else ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One line of the placements file."""

    task_id: str
    attempt: int
    outcome: Outcome
    machine_id: str = ""
    gpu_devices: tuple[int, ...] = ()
    placed_ms: int | None = None
    ended_ms: int | None = None
    reason: str = ""
