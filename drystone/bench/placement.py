"""How fast a batch is decided: columns of shapes in, machines out, room taken on the index.

Knows no Temporal; the ledger only as the rows that an index is loaded from.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from sqlalchemy import Engine, insert

from domain.fleet import MachineColumns
from domain.resources import COLUMNS
from drystone.bench.fleets import batch, fleet, some_shapes
from drystone.bench.generated import ledger_database
from drystone.bench.telling import Say, silent
from placement.assign import UNPLACED, Assigned, assign
from placement.blob import pack, unpack
from placement.demand import Batch, Shape
from placement.feasible import feasible
from placement.hands import one_pool
from placement.index import MachineIndex
from placement.policy import DEFAULT_POLICY
from store.columns import machine_columns
from store.schema import migrate
from store.session import open_engine, reading, transaction
from store.tables import MACHINE

RUNS = 5
ONE_TASK_RUNS = 101
NAIVE_TASKS = 100
HEARTBEATS = 10_000
STORED_MACHINES = 100_000
COPIED_BYTES = 64 * 2**20
ROWS_PER_STATEMENT = 5_000


def run(
    machines: int,
    tasks: int,
    shapes: int,
    seed: int,
    stored: int = STORED_MACHINES,
    say: Say = silent,
) -> dict[str, Any]:
    """Medians of runs that all start from the same fleet, about 70 % in use."""
    say(f"{machines} machines")
    columns = fleet(machines, seed)
    index = MachineIndex()
    index.upsert_columns(columns)
    rng = random.Random(seed)
    kinds = some_shapes(shapes, rng)
    many = batch(kinds, tasks, rng)
    _undo(index, many, assign(index, many, seed=seed))  # Warm: rules and pools are known.
    took, placed, hand = [], 0, 0
    for number in range(RUNS):
        say(f"run {number + 1} of {RUNS}")
        started = time.perf_counter()
        done = assign(index, many, seed=seed + number)
        took.append(time.perf_counter() - started)
        placed, hand = int(np.count_nonzero(done.slot != UNPLACED)), done.least_hand
        _undo(index, many, done)
    say("one task, and the naive scan")
    singles = []
    for number, shape in enumerate(some_shapes(ONE_TASK_RUNS, rng)):
        singles.append(_timed(partial(assign, index, Batch.of([shape]), seed=number)))
    naive = [_timed(partial(_naive, index, shape)) for shape in some_shapes(NAIVE_TASKS, rng)]
    say("the index loaded, and heartbeats")
    return {
        "machines": machines,
        "tasks": tasks,
        "shapes": shapes,
        "placed": placed,
        "placements_per_s": round(placed / statistics.median(took)),
        "naive_per_s": round(1 / statistics.median(naive), 1),
        "candidates_per_task": hand,
        "one_exact_ms": round(1e3 * statistics.median(singles), 3),
        "index_mb": round(index.column_bytes() / 1e6, 2),
        "index_load_ms": _load_ms(stored, seed),
        "blob_load_ms": _blob_load_ms(stored, seed),
        "heartbeats_10k_ms": _heartbeats_ms(index),
        "memory_bandwidth_gb_s": _memory_bandwidth_gb_s(),
    }


def _undo(index: MachineIndex, many: Batch, done: Assigned) -> None:
    for code, slot in zip(many.code.tolist(), done.slot.tolist(), strict=True):
        if slot != UNPLACED:
            index.give_back(slot, many.shapes[code])


def _naive(index: MachineIndex, shape: Shape) -> None:
    """The exact scan that everybody writes first: a mask of booleans over all machines from the
    same predicates, the same score on all of them, the greatest where the mask is true."""
    mask = feasible(index, shape, index.everywhere)
    one = np.zeros(1, dtype=np.int32)
    hands = one_pool(index, Batch.of([shape]), index.everywhere, 0, codes=one, shifts=None)
    score = DEFAULT_POLICY.score(hands, np.zeros((hands.k, 1), dtype=np.int32), None)[:, 0]
    best = int(np.where(mask, score, -1.0).argmax())
    if mask[best]:
        index.take(best, shape)
        index.give_back(best, shape)


def _heartbeats_ms(index: MachineIndex) -> float:
    """What 10,000 machines have in use, and that they answer, as columns."""
    rng = np.random.default_rng(0)
    count = min(HEARTBEATS, index.slots)
    slots = rng.permutation(index.slots)[:count]
    used = (index.room.capacity[: len(COLUMNS), slots] - index.free[: len(COLUMNS), slots]).copy()
    answers = index.reachable[slots]
    return _median_ms(lambda: index.put_used(slots, used, answers))


def _load_ms(machines: int, seed: int) -> float:
    """From rows of the ledger's table of machines to an index that answers."""
    with _stored(fleet(machines, seed)) as engine, reading(engine) as connection:

        def load() -> None:
            MachineIndex().upsert_columns(machine_columns(connection))

        return _median_ms(load)


def _blob_load_ms(machines: int, seed: int) -> float:
    """From the same machines in one piece of bytes."""
    blob = pack(fleet(machines, seed))
    return _median_ms(lambda: MachineIndex().upsert_columns(unpack(blob)))


@contextmanager
def _stored(columns: MachineColumns) -> Iterator[Engine]:
    with ledger_database("sqlite://") as url:
        engine = open_engine(url)
        migrate(engine)
        markings = [
            (json.dumps(labels), json.dumps([taint.model_dump() for taint in taints]))
            for labels, taints in columns.markings
        ]
        rows = [
            _row(columns, at, *markings[columns.marking[at]]) for at in range(len(columns.name))
        ]
        with transaction(engine) as connection:
            for first in range(0, len(rows), ROWS_PER_STATEMENT):
                connection.execute(insert(MACHINE), rows[first : first + ROWS_PER_STATEMENT])
        yield engine
        engine.dispose()


def _row(columns: MachineColumns, at: int, labels: str, taints: str) -> dict[str, Any]:
    return {
        "place": f"{columns.cluster[at]}/{columns.name[at]}",
        "cluster": columns.cluster[at],
        "name": columns.name[at],
        "instance": "i",
        "zone": columns.zone[at],
        "rack": columns.rack[at],
        "labels": labels,
        "taints": taints,
        "class_digest": "",
        **{f"cap_{name}": columns.capacity[row][at] for row, name in enumerate(COLUMNS)},
        **{f"used_{name}": columns.used[row][at] for row, name in enumerate(COLUMNS)},
        "cordoned": int(columns.cordoned[at]),
        "reachable": int(columns.reachable[at]),
        "revision": 1,
        "updated_at": 0,
    }


def _memory_bandwidth_gb_s() -> float:
    """A copy from memory to memory: bytes read and bytes written."""
    source = np.ones(COPIED_BYTES // 8)
    there = np.empty_like(source)
    ms = _median_ms(lambda: np.copyto(there, source))
    return round(2 * COPIED_BYTES / ms / 1e6, 1)


def _median_ms(call: Callable[[], object]) -> float:
    return round(1e3 * statistics.median(_timed(call) for _ in range(RUNS)), 3)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
