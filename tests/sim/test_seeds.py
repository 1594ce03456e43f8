"""Two hundred worlds with faults: no invariant is violated, and each is the same when run again."""

import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from sim.run import Result, run
from sim.world import new_ledger

SEEDS = 200
SEEDS_PER_CHUNK = 10
PROCESSES = 2
HAPPENS = {
    "crash": 100,
    "stall": 60,
    "block": 100,
    "frozen": 50,
    "thawed": 15,
    "fence": 20,
    "settle fenced": 40,
    "settle lost": 30,
    "settle refused": 30,
    "settle stopped": 100,
    "late exited": 5,
    "late stopped": 10,
    "note_orphan": 20,
    "terminate": 10,
    "reset": 10,
    "continue": 50,
    "withdraw": 40,
    "stop_order": 10,
}
"""At least so often in all of them together."""


def _chunk(first: int) -> list[Result]:
    """Some seeds, up to the first that goes wrong."""
    engine = new_ledger()
    results = []
    for seed in range(first, first + SEEDS_PER_CHUNK):
        results.append(run(seed, engine))
        if results[-1].violation is not None:
            break
    return results


def test_no_seed_violates_an_invariant():
    # Fresh processes: a fork would copy whatever threads other tests have started.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        chunks = list(pool.map(_chunk, range(0, SEEDS, SEEDS_PER_CHUNK)))
    results = [result for chunk in chunks for result in chunk]
    for result in results:
        if result.violation is not None:
            story = "\n".join(result.lines)
            pytest.fail(f"{story}\npython -m sim {result.seed}: {result.violation}", pytrace=False)
    assert len({result.hash for result in results}) == SEEDS
    happened = sum((result.counts for result in results), Counter())
    scarce = {what: happened[what] for what, least in HAPPENS.items() if happened[what] < least}
    assert not scarce, "too little of this happened for the invariants to mean anything"


def test_a_seed_tells_the_same_story_in_any_process():
    engine = new_ledger()
    here = [run(seed, engine) for seed in range(SEEDS_PER_CHUNK)]
    context = multiprocessing.get_context("spawn")  # Its hashes of texts differ from ours.
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        there = pool.submit(_chunk, 0).result()
    assert all(result.events > 500 for result in here)
    assert here == there
