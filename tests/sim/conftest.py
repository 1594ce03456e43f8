"""The two hundred worlds, begun with the first test and run beside all others: most of those wait
for something, while these only compute. Decides when they run, and knows nothing of what they show.
"""

import contextlib
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path

import pytest

from sim.run import Result, run
from sim.world import new_ledger

SEEDS = 200
SEEDS_PER_CHUNK = 10
PROCESSES = 2
NICE_MAX = 19
TESTS_BEFORE_MIN = 200
"""With fewer there is no time to win."""
# Fresh processes: a fork would copy whatever threads other tests have started.
SPAWN = multiprocessing.get_context("spawn")


def chunk(first: int) -> list[Result]:
    """Some seeds, up to the first that goes wrong."""
    engine = new_ledger()
    results = []
    for seed in range(first, first + SEEDS_PER_CHUNK):
        results.append(run(seed, engine))
        if results[-1].violation is not None:
            break
    return results


class Worlds:
    """All seeds; those that are not done when they are asked for are run by all processors."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._begun: dict[int, AsyncResult[list[Result]]] = {}

    def begin(self) -> None:
        """In one process that yields to every other."""
        self._pool = SPAWN.Pool(1, initializer=_yield_to_others)
        self._begun = {first: self._pool.apply_async(chunk, (first,)) for first in _FIRSTS}

    def results(self) -> list[Result]:
        """Of all seeds, in their order. On a busy machine the process has done little: nobody
        waits for it."""
        chunks = {first: begun.get() for first, begun in self._begun.items() if begun.ready()}
        self.end()
        left = [first for first in _FIRSTS if first not in chunks]
        with ProcessPoolExecutor(PROCESSES, mp_context=SPAWN) as pool:
            chunks |= zip(left, pool.map(chunk, left), strict=True)
        return [result for first in _FIRSTS for result in chunks[first]]

    def end(self) -> None:
        """Whatever is under way is not needed."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()


_FIRSTS = range(0, SEEDS, SEEDS_PER_CHUNK)
_WORLDS = pytest.StashKey[Worlds]()


def _yield_to_others() -> None:
    os.nice(NICE_MAX)
    # Where Linux groups processes by session, that counts within a session only.
    with contextlib.suppress(OSError):
        os.setsid()
        Path("/proc/self/autogroup").write_text(str(NICE_MAX))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Only where something else goes first."""
    worlds = session.stash[_WORLDS] = Worlds()
    asks = [at for at, item in enumerate(session.items) if "worlds" in _names(item)]
    if asks and asks[0] >= TESTS_BEFORE_MIN and not session.config.option.collectonly:
        worlds.begin()


def _names(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Also when the tests were broken off."""
    if _WORLDS in session.stash:
        session.stash[_WORLDS].end()


@pytest.fixture
def worlds(request: pytest.FixtureRequest) -> Worlds:
    """Begun before, or not."""
    return request.session.stash[_WORLDS]
