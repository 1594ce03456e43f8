"""How fast a round decides: arrays in, machines out, room taken. Knows no ledger, no Temporal."""

import random
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from domain.constraint import Constraints, LabelTerm, Spread, Taint
from domain.fleet import MachineStanding, PendingTask, Vector
from domain.priority import Band
from domain.resources import Resources
from domain.shape import shape_digest
from domain.task import TaskSpec
from placement.index import MachineIndex
from placement.round import place

RUNS = 5
ONE_TASK_RUNS = 101
HEARTBEATS = 10_000
ZONES, RACKS = 20, 2_500
MACHINE_TYPES: tuple[Vector, ...] = (
    (8_000, 32_768, 0, 500_000, 10_000),
    (16_000, 65_536, 0, 1_000_000, 10_000),
    (32_000, 131_072, 0, 1_000_000, 25_000),
    (64_000, 262_144, 0, 4_000_000, 25_000),
    (64_000, 131_072, 0, 2_000_000, 25_000),
    (96_000, 786_432, 0, 4_000_000, 50_000),
    (96_000, 393_216, 8, 8_000_000, 50_000),
    (128_000, 524_288, 4, 8_000_000, 50_000),
)


def run(machines: int, tasks: int, shapes: int, seed: int) -> dict[str, Any]:
    """Medians over a fleet about 70 % in use; the index starts anew for each batch."""
    rng = random.Random(seed)
    fleet = [_machine(rng, number) for number in range(machines)]
    batch = _pending(rng, tasks, shapes)
    loads, rounds, placed = [], [], 0
    for number in range(RUNS):
        started = time.perf_counter()
        index = MachineIndex(fleet)
        loaded = time.perf_counter()
        result = place(index, batch, seed=seed + number, tasks_max=tasks)
        loads.append(loaded - started)
        rounds.append(time.perf_counter() - loaded)
        placed = len(result.placed)
    index = MachineIndex(fleet)
    beats = [_timed(lambda: index.upsert(fleet[:HEARTBEATS])) for _ in range(RUNS)]
    singles = []
    for number, task in enumerate(_pending(rng, ONE_TASK_RUNS, ONE_TASK_RUNS)):
        singles.append(_timed(lambda t=task, n=number: place(index, [t], seed=n)))
    return {
        "machines": machines,
        "tasks": tasks,
        "shapes": shapes,
        "placed": placed,
        "placements_per_s": round(placed / statistics.median(rounds)),
        "one_exact_ms": round(1e3 * statistics.median(singles), 3),
        "index_load_ms": round(1e3 * statistics.median(loads), 1),
        "heartbeats_10k_ms": round(1e3 * statistics.median(beats), 1),
    }


def _timed(call: Any) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _machine(rng: random.Random, number: int) -> MachineStanding:
    capacity = MACHINE_TYPES[number % len(MACHINE_TYPES)]
    cpu, memory = (int(size * rng.uniform(0.4, 1.0)) for size in capacity[:2])
    return MachineStanding(
        cluster=f"c{number // 2_000}",
        name=f"m{number:06}",
        zone=f"z{number % ZONES}",
        rack=f"r{number % RACKS}",
        labels={"disk": rng.choice(("ssd", "hdd")), "host": f"m{number:06}"},
        taints=(Taint(key="dedicated", value="ml"),) if rng.random() < 0.05 else (),
        capacity=capacity,
        used=(cpu, memory, 0, 0, 0),
        cordoned=rng.random() < 0.01,
        reachable=rng.random() >= 0.01,
    )


def _pending(rng: random.Random, tasks: int, shapes: int) -> list[PendingTask]:
    kinds = [_spec(rng, number) for number in range(shapes)]
    names = [(spec, shape_digest(spec)) for spec in kinds]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    pending = []
    for number in range(tasks):
        spec, shape = rng.choice(names)
        waited = timedelta(milliseconds=number)
        key = f"{spec.team}/t{number:06}"
        row = PendingTask(key, spec.team, Band.NORMAL, start + waited, 0, shape, spec)
        pending.append(row)
    return pending


def _spec(rng: random.Random, number: int) -> TaskSpec:
    """Three tasks in ten ask for a zone or a label, two in ten are spread with their service."""
    rules: dict[str, Any] = {}
    chance = rng.random()
    if chance < 0.15:
        rules["zones"] = (f"z{rng.randrange(ZONES)}",)
    elif chance < 0.3:
        rules["labels"] = (LabelTerm(key="disk", values=("ssd",)),)
    if rng.random() < 0.2:
        rules |= {"service": f"s{number}", "spread": rng.choice((Spread.ZONE, Spread.RACK))}
    cpu_milli = int(min(rng.lognormvariate(6.5, 0.8), 16_000)) + 1
    memory_mib = int(cpu_milli * rng.uniform(1.0, 8.0)) + 1
    return TaskSpec(
        team="bench",
        id=f"shape-{number}",
        command=("true",),
        resources=Resources(cpu_milli=cpu_milli, memory_mib=memory_mib),
        constraints=Constraints(**rules),
    )
