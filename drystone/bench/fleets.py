"""A fleet of about 70 % in use and tasks for it, as the placement benchmarks ask of the engine."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from domain.constraint import Constraints, LabelTerm, Spread, Taint
from domain.fleet import MachineColumns
from domain.resources import Resources
from placement.demand import Batch, Shape, shape_for

ZONES = 20
RACK_MACHINES = 40
CLUSTER_MACHINES = 2_000
MACHINE_TYPES: tuple[tuple[int, int, int, int, int], ...] = (
    (32_000, 131_072, 0, 500_000, 10_000),
    (48_000, 98_304, 0, 1_000_000, 10_000),
    (64_000, 262_144, 0, 1_000_000, 25_000),
    (64_000, 131_072, 0, 2_000_000, 25_000),
    (96_000, 786_432, 0, 4_000_000, 50_000),
    (128_000, 524_288, 0, 4_000_000, 50_000),
    (96_000, 393_216, 8, 8_000_000, 50_000),
    (128_000, 524_288, 4, 8_000_000, 50_000),
)
"""cpu_milli, memory_mib, GPUs, disk_mib, net_mbps."""
_TAINT = (Taint(key="dedicated", value="ml"),)
_MARKINGS: tuple[tuple[dict[str, str], tuple[Taint, ...]], ...] = tuple(
    ({"disk": disk, "arch": arch}, taints)
    for disk in ("ssd", "hdd")
    for arch in ("x86", "arm")
    for taints in ((), _TAINT)
)


def fleet(machines: int, seed: int) -> MachineColumns:
    """20 zones, a rack for 40 machines, 8 machine types, 70 % of every resource in use on average;
    5 % of the machines tainted, 1 % cordoned, 1 % silent."""
    rng = np.random.default_rng(seed)
    number = np.arange(machines)
    capacity = np.array(MACHINE_TYPES).T[:, rng.integers(len(MACHINE_TYPES), size=machines)]
    level = rng.beta(7.0, 3.0, size=machines)
    # Each resource of a machine is in use to about the same part, but not quite.
    parts = np.clip(level + rng.normal(0.0, 0.08, size=(5, machines)), 0.0, 1.0)
    used = (capacity * parts).astype(np.int64)
    tainted = rng.random(machines) < 0.05
    marking = rng.integers(4, size=machines) * 2 + tainted
    return MachineColumns(
        cluster=[f"c{n // CLUSTER_MACHINES}" for n in number.tolist()],
        name=[f"m{n:06}" for n in number.tolist()],
        zone=[f"z{n // RACK_MACHINES % ZONES:02}" for n in number.tolist()],
        rack=[f"r{n // RACK_MACHINES:04}" for n in number.tolist()],
        marking=marking.tolist(),
        markings=_MARKINGS,
        capacity=capacity.tolist(),
        used=used.tolist(),
        cordoned=(rng.random(machines) < 0.01).tolist(),
        reachable=(rng.random(machines) >= 0.01).tolist(),
    )


def some_shapes(shapes: int, rng: random.Random) -> list[Shape]:
    """Distinct demands: three in ten ask for a zone or a label, two in ten are spread."""
    return [_shape(rng, number) for number in range(shapes)]


def batch(shapes: Sequence[Shape], tasks: int, rng: random.Random) -> Batch:
    """Tasks of these shapes; every shape comes up when there are as many tasks as shapes."""
    code = [number % len(shapes) for number in range(tasks)]
    rng.shuffle(code)
    return Batch.coded(tuple(shapes), np.array(code, dtype=np.int32))


def _shape(rng: random.Random, number: int) -> Shape:
    rules: dict[str, Any] = {}
    chance = rng.random()
    if chance < 0.15:
        rules["zones"] = (f"z{rng.randrange(ZONES):02}",)
    elif chance < 0.3:
        rules["labels"] = (LabelTerm(key="disk", values=("ssd",)),)
    if rng.random() < 0.2:
        rules |= {"service": f"s{number}", "spread": rng.choice((Spread.ZONE, Spread.RACK))}
    cpu_milli = int(min(rng.lognormvariate(6.9, 0.9), 16_000)) + 50
    return shape_for(
        Resources(
            cpu_milli=cpu_milli,
            memory_mib=int(cpu_milli * rng.uniform(0.5, 8.0)) + 64,
            disk_mib=rng.randrange(100, 20_000),
            net_mbps=rng.randrange(10, 200),
        ),
        Constraints(**rules),
        team=f"team-{number % 20}",
    )
