"""A fleet filled to exhaustion, batch after batch: what scarcity costs. Knows no ledger."""

import random
import statistics
import time
from typing import Any

import numpy as np

from domain.resources import COLUMNS
from drystone.bench.fleets import batch, fleet, some_shapes
from drystone.bench.measure import percentile
from drystone.bench.telling import Say, silent
from placement.assign import UNPLACED, assign
from placement.index import MachineIndex

SHAPES = 2_000
SEED = 1
BATCHES_MAX = 2_000
EXHAUSTED_PART = 0.01
"""Done when less than this part of a batch finds a machine."""


def run(machines: int, batch_tasks: int, say: Say = silent) -> dict[str, Any]:
    """One run from 70 % in use until hardly a task fits; only `assign` is timed."""
    say(f"{machines} machines")
    index = MachineIndex()
    index.upsert_columns(fleet(machines, SEED))
    rng = random.Random(SEED)
    shapes = some_shapes(SHAPES, rng)
    took: list[float] = []
    placements = 0
    for number in range(BATCHES_MAX):
        say(f"batch {number + 1}, {placements} placed")
        tasks = batch(shapes, batch_tasks, rng)
        started = time.perf_counter()
        done = assign(index, tasks, seed=number)
        took.append(1e3 * (time.perf_counter() - started))
        placed = int(np.count_nonzero(done.slot != UNPLACED))
        placements += placed
        if placed < EXHAUSTED_PART * batch_tasks:
            break
    capacity = index.room.capacity[: len(COLUMNS)].sum(axis=1, dtype=np.int64)
    free = np.maximum(index.free[: len(COLUMNS)], 0).sum(axis=1, dtype=np.int64)
    return {
        "machines": machines,
        "batch": batch_tasks,
        "shapes": SHAPES,
        "batches": len(took),
        "placements": placements,
        "placements_per_s": round(placements / (sum(took) / 1e3)),
        "batch_ms": {
            "p50": round(statistics.median(took), 2),
            "p99": round(percentile(took, 99), 2),
            "max": round(max(took), 2),
        },
        "utilisation": {
            name: round(1 - float(free[row] / capacity[row]), 4)
            for row, name in enumerate(COLUMNS)
            if capacity[row]
        },
    }
