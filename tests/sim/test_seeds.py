"""Two hundred worlds with faults: no invariant is violated, and each is the same when run again."""

from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from sim.run import run
from sim.world import new_ledger
from tests.sim.conftest import SEEDS, SEEDS_PER_CHUNK, SPAWN, Worlds, chunk

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


def test_no_seed_violates_an_invariant(worlds: Worlds) -> None:
    results = worlds.results()
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
    # The hashes of texts in a fresh process differ from ours.
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        there = pool.submit(chunk, 0).result()
    assert all(result.events > 500 for result in here)
    assert here == there
