"""The two file formats: lines to machines and tasks. Knows nothing of what becomes of them."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from domain.constraint import Constraints, TaintEffect
from domain.misfit import told
from domain.priority import Band
from domain.unknown import unknown_fields
from drystone.simulate.cells import Columns, Row, rows, unique
from drystone.simulate.records import DEVICE_MILLI, NO_RULES, Amounts, Demand, MachineRow, TaskRow
from drystone.simulate.rules import constraints_of

RESERVED = ("reserved_cpu_milli", "reserved_memory_mib", "reserved_disk_mib", "reserved_net_mbps")
MACHINES = Columns(
    known=(
        *("id", "cluster", "zone", "rack", "cpu_milli", "memory_mib", "gpu", "gpu_model"),
        *("disk_mib", "net_mbps", "labels", "taints", "cordoned", "price_per_hour", *RESERVED),
    ),
    required=("id",),
)
TIMES = ("submit_s", "duration_s")
TASKS = Columns(
    known=(
        *("id", "team", "priority", "cpu_milli", "memory_mib", "gpu", "gpu_milli", "gpu_models"),
        *("disk_mib", "net_mbps", "clusters", "zones", "labels", "tolerations", "service"),
        *("max_per_machine", "rules", "gang", "gang_size", *TIMES, "preemptible_after_s"),
    ),
    required=("id",),
)
OPENB_MACHINES = Columns(
    known=("sn", "cpu_milli", "memory_mib", "gpu", "model"),
    required=("sn", "cpu_milli", "memory_mib", "gpu"),
)
OPENB_TIMES = ("creation_time", "deletion_time", "scheduled_time")
OPENB_TASKS = Columns(
    known=(
        *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos"),
        *("pod_phase", *OPENB_TIMES),
    ),
    required=("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
)
RULES = ("labels", "anti_affinity", "near", "apart", "limits", "even")
DEVICES_MAX = 64
"""GPU devices of one machine: what the device columns of the index hold."""
MAX_PER_MACHINE_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Format:
    """How to read one kind of file."""

    name: str
    machine_columns: Columns
    machine: Callable[[Row], MachineRow]
    task_columns: Columns
    task_id: str
    demand: Callable[[Row], Demand]
    times: tuple[str, ...]
    """Columns of a task that its demand has nothing to do with, besides its id."""
    submitted: Callable[[Row], tuple[int | None, int | None]]
    """When it comes and how long it runs, in milliseconds."""


def read_machines(path: Path, form: "Format") -> list[MachineRow]:
    """Every machine of a file, in order. InputError names file, line and column of a fault."""
    found = [form.machine(row) for row in rows(path, form.machine_columns)]
    return unique(path, "machine", found, lambda one: one.id)


def read_tasks(path: Path, form: "Format") -> list[TaskRow]:
    """Every task of a file, in order; either all have a time of arrival or none has."""
    known: dict[tuple[str, ...], Demand] = {}
    apart = {form.task_id, *form.times}
    found: list[TaskRow] = []
    for row in rows(path, form.task_columns):
        asked = tuple(cell for name, cell in row.cells.items() if name not in apart)
        demand = known.get(asked)
        if demand is None:
            demand = known[asked] = form.demand(row)
            _check_rules(row, demand)
        submit_ms, duration_ms = form.submitted(row)
        if found and (found[0].submit_ms is None) != (submit_ms is None):
            row.fail(f"{form.times[0]} must be given for all tasks or for none")
        found.append(TaskRow(row.needed(form.task_id), demand, submit_ms, duration_ms))
    return unique(path, "task", found, lambda one: one.id)


def _check_rules(row: Row, demand: Demand) -> None:
    try:
        constraints_of(demand)
    except ValidationError as error:
        first = error.errors()[0]
        row.fail(f"{first['loc'][0] if first['loc'] else 'rules'}: {first['msg']}")


def _machine(row: Row) -> MachineRow:
    capacity = _amounts(row)
    reserved = Amounts(**{name.removeprefix("reserved_"): row.quantity(name) for name in RESERVED})
    if any(taken > there for taken, there in zip(reserved, capacity, strict=True)):
        row.fail("more is reserved than the machine has")
    return MachineRow(
        id=row.needed("id"),
        cluster=row.text("cluster", "sim"),
        zone=row.text("zone"),
        rack=row.text("rack"),
        capacity=capacity,
        reserved=reserved,
        gpu_model=row.text("gpu_model"),
        labels=dict(row.pairs("labels")),
        taints=tuple(_taint(row, key, value) for key, value in row.pairs("taints")),
        cordoned=row.flag("cordoned"),
        price_per_hour=_price(row),
    )


def _amounts(row: Row, gpu: str = "gpu") -> Amounts:
    return Amounts(
        cpu_milli=row.quantity("cpu_milli"),
        memory_mib=row.quantity("memory_mib"),
        gpu=row.quantity(gpu, DEVICES_MAX),
        disk_mib=row.quantity("disk_mib"),
        net_mbps=row.quantity("net_mbps"),
    )


def _taint(row: Row, key: str, written: str) -> tuple[str, str]:
    """`value:NoSchedule`, or the value alone."""
    value, colon, effect = written.rpartition(":")
    if not colon:
        return key, written
    if effect != TaintEffect.NO_SCHEDULE:
        row.fail(f"taints: the effect must be {TaintEffect.NO_SCHEDULE}, not {effect!r}")
    return key, value


def _price(row: Row) -> float:
    written = row.text("price_per_hour", "0")
    try:
        price = float(written)
    except ValueError:
        price = math.nan
    if not (math.isfinite(price) and price >= 0):
        row.fail(f"price_per_hour must be a number of at least 0, not {written!r}")
    return price


def _demand(row: Row) -> Demand:
    for column in ("gang", "gang_size"):
        if row.text(column):
            row.fail(f"{column}: groups that start together are not placed yet; leave it empty")
    # It only allows what placement does not do yet; but it must be a time.
    row.milliseconds("preemptible_after_s")
    asks, share_milli = _shared(row, _amounts(row), row.quantity("gpu_milli", DEVICE_MILLI - 1))
    most, service = row.quantity("max_per_machine", MAX_PER_MACHINE_MAX), row.text("service")
    if most and not service:
        row.fail("max_per_machine needs service")
    return Demand(
        asks=asks,
        gpu_milli=share_milli,
        gpu_models=row.names("gpu_models"),
        team=row.text("team", "default"),
        band=_band(row),
        clusters=row.names("clusters"),
        zones=row.names("zones"),
        labels=row.pairs("labels"),
        tolerations=tuple(_toleration(row, *pair) for pair in row.pairs("tolerations")),
        service=service,
        max_per_machine=most,
        rules=_rules(row, service),
    )


def _rules(row: Row, service: str) -> Constraints:
    """A JSON object with those fields of a task's `constraints` that have no column."""
    written = row.text("rules")
    if not written:
        return NO_RULES
    try:
        given = json.loads(written)
    except ValueError as error:
        row.fail(f"rules must be JSON: {error}")
    if not isinstance(given, dict):
        row.fail("rules must be a JSON object")
    unknown = [name for name in given if name not in RULES]
    unknown += [name for name in unknown_fields(Constraints, given) if "." in name]
    if unknown:
        row.fail(f"rules: unknown: {', '.join(unknown)}; known are {', '.join(RULES)}")
    try:
        return Constraints.model_validate({**given, "service": service or None})
    except ValidationError as error:
        return row.fail(f"rules: {told(error)}")


def _toleration(row: Row, key: str, written: str) -> tuple[str, str | None]:
    """`k=v`, `k=v:NoSchedule`; `k` alone tolerates every value."""
    if not written:
        return key.removesuffix(f":{TaintEffect.NO_SCHEDULE}"), None
    return _taint(row, key, written)


def _shared(row: Row, asks: Amounts, share_milli: int) -> tuple[Amounts, int]:
    """A share stands for the one device it is part of."""
    if share_milli and asks.gpu > 1:
        row.fail("gpu_milli is a share of one device: gpu must be 0 or 1")
    return (asks._replace(gpu=0) if share_milli else asks), share_milli


def _band(row: Row) -> Band:
    written = row.text("priority", "NORMAL").upper()
    if written not in Band.__members__:
        row.fail(f"priority must be one of {', '.join(Band.__members__)}, not {written!r}")
    return Band[written]


def _times(row: Row) -> tuple[int | None, int | None]:
    return row.milliseconds("submit_s"), row.milliseconds("duration_s")


def _openb_machine(row: Row) -> MachineRow:
    return MachineRow(id=row.needed("sn"), capacity=_amounts(row), gpu_model=row.text("model"))


def _openb_demand(row: Row) -> Demand:
    asks, milli = _amounts(row, gpu="num_gpu"), row.quantity("gpu_milli", DEVICE_MILLI)
    if asks.gpu and not milli:
        row.fail("gpu_milli must be 1 to 1000 when num_gpu is not 0")
    if milli == DEVICE_MILLI or not asks.gpu:
        milli = 0
    asks, milli = _shared(row, asks, milli)
    return Demand(asks=asks, gpu_milli=milli, gpu_models=row.names("gpu_spec"))


def _openb_times(row: Row) -> tuple[int | None, int | None]:
    """It ran from `scheduled_time` to `deletion_time`; one that never ran is taken to need the
    whole time from its creation."""
    created, deleted, started = (row.milliseconds(column) for column in OPENB_TIMES)
    if created is None:
        return None, None
    begun = created if started is None else started
    if deleted is None:
        return created, None
    if deleted < begun:
        row.fail("deletion_time lies before the task's start")
    return created, deleted - begun


DRYSTONE = Format(
    name="drystone",
    machine_columns=MACHINES,
    machine=_machine,
    task_columns=TASKS,
    task_id="id",
    demand=_demand,
    times=TIMES,
    submitted=_times,
)
OPENB = Format(
    name="openb",
    machine_columns=OPENB_MACHINES,
    machine=_openb_machine,
    task_columns=OPENB_TASKS,
    task_id="name",
    demand=_openb_demand,
    times=("creation_time", "deletion_time", "scheduled_time", "qos", "pod_phase"),
    submitted=_openb_times,
)
FORMATS = {form.name: form for form in (DRYSTONE, OPENB)}
