"""What the ledger and a placement round hand each other: rows that wait, machines, proposals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from domain.constraint import Taint
from domain.priority import Band
from domain.reasons import Reason
from domain.task import TaskSpec

Vector = tuple[int, int, int, int, int]
"""The standard resources in the order of `domain.resources.COLUMNS`."""


@dataclass(frozen=True, slots=True)
class PendingTask:
    """A row that waits for a machine and may have one now."""

    key: str
    team: str
    band: Band
    enqueued_at: datetime
    """When the task first came: kept when it is enqueued again."""
    number: int
    """The last attempt number minted so far."""
    shape: str
    """`domain.shape.shape_digest` of the specification."""
    spec: TaskSpec
    """Of a task of this team and shape, perhaps another one: placement cannot tell them apart."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A round's wish: this task on this machine."""

    key: str
    cluster: str
    machine: str
    gpu_devices: tuple[int, ...] = ()
    """Which of the machine's devices; a hint until claims keep devices themselves."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """`number` when the claim was made (the fence); `reason` when it was not."""

    key: str
    number: int | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """`count` attempts on a machine that rules between tasks look at, remnants included."""

    team: str
    service: str | None
    shuns: tuple[str, ...]
    """Services of the team that these attempts want not beside them."""
    count: int


@dataclass(frozen=True, slots=True)
class MachineStanding:
    """One machine with everything that holds room on it, remnants included."""

    cluster: str
    name: str
    zone: str
    rack: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    capacity: Vector
    used: Vector
    cordoned: bool
    reachable: bool
    """Its keeper answers the agent. Whether the agent answers stands in `Fleet.clusters`."""
    capacity_extra: Mapping[str, int] = field(default_factory=dict)
    used_extra: Mapping[str, int] = field(default_factory=dict)
    beside: tuple[Beside, ...] = ()
    gpu_free_milli: tuple[int, ...] | None = None
    """Free thousandths per GPU device, where each is known; `used` then says nothing of GPUs. None:
    only numbers are known, and the first so many devices count as taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineColumns:
    """The same of many machines, a sequence per fact and an entry per machine: the fast way in.

    What few machines have stands apart, by the machine's place in the columns.
    """

    cluster: Sequence[str]
    name: Sequence[str]
    zone: Sequence[str]
    rack: Sequence[str]
    marking: Sequence[int]
    """Which of `markings` the machine bears."""
    markings: Sequence[tuple[Mapping[str, str], tuple[Taint, ...]]]
    """Distinct labels and taints."""
    capacity: Sequence[Sequence[int]]
    """One sequence per standard resource."""
    used: Sequence[Sequence[int]]
    cordoned: Sequence[bool | int]
    reachable: Sequence[bool | int]
    extras: Mapping[int, tuple[Mapping[str, int], Mapping[str, int]]] = field(default_factory=dict)
    """Capacity and use of named resources."""
    beside: Mapping[int, tuple[Beside, ...]] = field(default_factory=dict)
    gpu_free_milli: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All machines, or those that changed since a revision; clusters are always complete."""

    machines: tuple[MachineStanding, ...]
    clusters: Mapping[str, bool]
    """Every cluster: True while it may be given new work."""
    revision: int
    """Pass it to the next read of changes."""
