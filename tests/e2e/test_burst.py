"""A burst of tiny tasks: every one is accepted or told to come again, and every one succeeds."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from store.audit import audit
from store.session import open_engine, reading
from tests.support.fleet import Fleet, wait_until

pytestmark = pytest.mark.e2e

CONCURRENCY = 50
TRIES_MAX = 100
MACHINES = "id,cpu_milli,memory_mib\n" + "".join(f"m{n},64000,262144\n" for n in range(20))


async def submit(http: httpx.AsyncClient, name: str, seen: Counter[int]) -> None:
    """Until it is accepted; whoever is told to wait waits."""
    body: dict[str, Any] = {
        "team": "burst",
        "id": name,
        "command": ["true"],
        "resources": {"cpu": "100m", "memory": "16Mi"},
        "simulated": {"duration_ms": 0},
    }
    for _ in range(TRIES_MAX):
        answer = await http.post("/v1/tasks", json=body)
        seen[answer.status_code] += 1
        if answer.is_success:
            return
        assert answer.status_code in (429, 503), answer.text
        await asyncio.sleep(float(answer.headers["Retry-After"]))
    raise AssertionError(f"never accepted: {name}")


async def submit_all(url: str, tasks: int) -> Counter[int]:
    """So many at once as a client of our own would; how often each status came."""
    seen: Counter[int] = Counter()
    turns = asyncio.Semaphore(CONCURRENCY)
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:

        async def one(number: int) -> None:
            async with turns:
                await submit(http, f"t{number}", seen)

        await asyncio.gather(*(one(number) for number in range(tasks)))
    return seen


def phases(engine: sa.Engine) -> dict[str, int]:
    """How many tasks stand where."""
    with reading(engine) as connection:
        rows = connection.execute(sa.text("select phase, count(*) from task group by phase"))
        return {str(phase): int(count) for phase, count in rows}


def again(connection: sa.Connection) -> list[str]:
    """What became of attempts that were not the last of their task."""
    query = """
        select claim.attempt, claim.ending, claim.stop_cause, claim.claimed_at, claim.admitted_at,
               claim.ended_at
        from claim join task on task.key = claim.key where claim.number < task.number limit 5
    """
    return [str(tuple(row)) for row in connection.execute(sa.text(query))]


async def burst(folder: Path, tasks: int, seconds: float) -> None:
    """Submit, wait for the end of all, look at what is left."""
    (folder / "machines.csv").write_text(MACHINES)
    fleet = Fleet(folder)
    fleet.simulate(folder / "machines.csv")
    engine = open_engine(fleet.database_url)
    try:
        fleet.start_all()
        began = time.monotonic()
        seen = await submit_all(fleet.url, tasks)
        accepted_s = time.monotonic() - began
        wait_until(
            lambda: phases(engine) == {"SUCCEEDED": tasks},
            f"all succeed: {phases(engine)}",
            seconds,
        )
        ended_s = time.monotonic() - began
        print(
            f"{tasks} tasks: accepted in {accepted_s:.1f} s, ended in {ended_s:.1f} s "
            f"({tasks / ended_s:.0f} a second), answers {dict(seen)}"
        )
        with reading(engine) as connection:
            assert audit(connection) == []
            assert again(connection) == [], "an attempt failed for no reason of its own"
    finally:
        engine.dispose()
        fleet.end()


async def test_300_zero_second_tasks_in_one_burst_all_succeed(tmp_path: Path) -> None:
    """L19, small"""
    await burst(tmp_path, tasks=300, seconds=120)


@pytest.mark.slow
async def test_10000_zero_second_tasks_in_one_burst_all_succeed(tmp_path: Path) -> None:
    """L19"""
    await burst(tmp_path, tasks=10_000, seconds=1_200)
