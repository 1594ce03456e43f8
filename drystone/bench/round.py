"""`drystone bench round`: from rows that wait to claims committed, the ledger included.

Each partition is a process of its own with its own index, as in production; all start together.
"""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection as Pipe
from statistics import median
from typing import Any

from sqlalchemy import Connection, Engine, text

from activities.rounds import PartitionRounds, Solved, batches
from activities.writer import LedgerWriter
from domain.claims import LedgerOperation
from drystone.bench.generated import GeneratedLedger, ledger_database
from runtime.settings import PlacementSettings
from store.claims import Claimed
from store.ledger import Applied
from store.session import open_engine, reading, transaction
from store.waiting import waiting_count

RUNS = 5
PLACED_PER_RUN_MAX = 20_000
"""With a longer backlog a run ends here, and so many new rows come for the next one."""
ANSWER_S_MAX = 600.0
PARTS = ("load", "solve", "commit", "verdicts")


@dataclass
class Tally:
    """What one partition did in one run."""

    placed: int = 0
    conflicts: int = 0
    ended_at: float = 0.0
    split_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    def add(self, *instants: float) -> None:
        """One round: when it began, and when each part was done."""
        for part, begun, ended in zip(PARTS, instants, instants[1:], strict=False):
            self.split_s[part] += ended - begun


def run(
    machines: int, tasks: int, partitions: int, database: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """Medians of the runs; docs/benchmarks.md says what each figure means."""
    with ledger_database(database) as url:
        ledger = GeneratedLedger(url, partitions, seed=1)
        say(f"{machines} machines")
        ledger.add_machines(machines)
        say(f"{tasks} tasks")
        ledger.add_tasks(tasks)
        batch = min(tasks, PLACED_PER_RUN_MAX)
        crew = Crew(url, partitions)
        try:
            crew.once(batch)  # Warms up, and is not counted.
            runs = []
            for number in range(RUNS):
                ledger.add_tasks(batch)
                say(f"run {number + 1} of {RUNS}")
                runs.append(crew.once(batch))
        finally:
            crew.stop()
        check(ledger.engine)
        ledger.engine.dispose()
    return _summary(runs)


class Crew:
    """One process for each partition, waiting for the word."""

    def __init__(self, url: str, partitions: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipes: list[Pipe] = []
        self._processes = []
        for partition in range(partitions):
            mine, theirs = spawn.Pipe()
            process = spawn.Process(
                target=serve, args=(url, partition, partitions, theirs), daemon=True
            )
            process.start()
            self._pipes.append(mine)
            self._processes.append(process)
        for pipe in self._pipes:
            _answer(pipe)

    def once(self, batch: int) -> tuple[float, list[Tally]]:
        """Place so many together; the seconds until the last was done, and each one's tally."""
        began = time.perf_counter()
        for number, pipe in enumerate(self._pipes):
            pipe.send(batch // len(self._pipes) + (number < batch % len(self._pipes)))
        tallies = [_answer(pipe) for pipe in self._pipes]
        return max(tally.ended_at for tally in tallies) - began, tallies

    def stop(self) -> None:
        """Let them end."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if process.is_alive():
                pipe.send(0)
            process.join(ANSWER_S_MAX)


def _answer(pipe: Pipe) -> Any:
    if not pipe.poll(ANSWER_S_MAX):
        raise TimeoutError(f"a partition has not answered within {ANSWER_S_MAX:.0f} s")
    return pipe.recv()


def serve(url: str, partition: int, partitions: int, pipe: Pipe) -> None:
    """The process of one partition: rounds on demand, until it is asked for none."""
    engine = open_engine(url)
    settings = PlacementSettings()
    rounds = PartitionRounds(
        engine=engine,
        partition=partition,
        partitions=partitions,
        compare_every=timedelta(seconds=settings.index_compare_s),
        tasks_max=settings.round_tasks_max,
    )
    writer = LedgerWriter(engine, _no_operations, lambda _operations, _applied: None)
    writer.start()
    rounds.load(datetime.now(UTC))
    pipe.send("ready")
    while batch := pipe.recv():
        pipe.send(_place(engine, writer, rounds, batch))
    writer.stop()
    engine.dispose()


def _place(engine: Engine, writer: LedgerWriter, rounds: PartitionRounds, batch: int) -> Tally:
    """Rounds, one after the other, until so many are placed or nothing more can be."""
    tally = Tally()
    again = True
    while again and tally.placed < batch:
        began = time.perf_counter()
        loaded = rounds.load(datetime.now(UTC))
        read = time.perf_counter()
        solved = rounds.decide(loaded, seed=time.time_ns())
        decided = time.perf_counter()
        claims = _claimed(writer, rounds, solved)
        settled = time.perf_counter()
        with transaction(engine) as connection:
            done = rounds.conclude(connection, solved, claims, None, datetime.now(UTC))
        rounds.settle(solved, claims)
        tally.ended_at = time.perf_counter()
        tally.add(began, read, decided, settled, tally.ended_at)
        placed = sum(one.number is not None for one in done.claimed)
        tally.placed += placed
        tally.conflicts += len(done.claimed) - placed
        with reading(engine) as connection:
            again = done.again or (
                bool(done.claimed) and waiting_count(connection, rounds.partition) > 0
            )
    return tally


def _claimed(writer: LedgerWriter, rounds: PartitionRounds, solved: Solved) -> list[Claimed]:
    """As a worker does it, each part in a transaction of its own."""
    begun = [
        writer.begin_apart(lambda c, part=part: rounds.claim(c, part, datetime.now(UTC)))  # type: ignore[misc]
        for part in batches(solved.result.placed)
    ]
    return [answer.result(ANSWER_S_MAX) for answer in begun]


def _no_operations(_connection: Connection, _operations: list[LedgerOperation]) -> Applied:
    raise AssertionError("a benchmark of rounds has no operations of tasks")


_NEVER = {
    "machines hold more than they have": """
        SELECT count(*) FROM machine
        WHERE used_cpu_milli > cap_cpu_milli OR used_memory_mib > cap_memory_mib
        OR used_gpu > cap_gpu OR used_disk_mib > cap_disk_mib OR used_net_mbps > cap_net_mbps
    """,
    "machines do not hold what their claims add up to": """
        SELECT count(*) FROM machine m LEFT JOIN (
            SELECT place, sum(cpu_milli) AS cpu_milli, sum(memory_mib) AS memory_mib
            FROM claim WHERE standing <> 'released' GROUP BY place
        ) c ON c.place = m.place
        WHERE m.used_cpu_milli <> coalesce(c.cpu_milli, 0)
        OR m.used_memory_mib <> coalesce(c.memory_mib, 0)
    """,
    "tasks have two claims": """
        SELECT count(*) FROM (
            SELECT key FROM claim WHERE standing <> 'released' GROUP BY key HAVING count(*) > 1
        ) twice
    """,
    "tasks are offered without a claim, or wait with one": """
        SELECT count(*) FROM task t LEFT JOIN claim c ON c.key = t.key
        WHERE (t.phase = 'PENDING') <> (c.key IS NULL)
    """,
}


def check(engine: Engine) -> None:
    """Ask the database what must never be; AssertionError says how often it is."""
    with reading(engine) as connection:
        for what, question in _NEVER.items():
            found = connection.scalar(text(question))
            if found:
                raise AssertionError(f"{found} {what}")


def _summary(runs: list[tuple[float, list[Tally]]]) -> dict[str, Any]:
    placed = [sum(tally.placed for tally in tallies) for _, tallies in runs]
    rates = [count / seconds for count, (seconds, _) in zip(placed, runs, strict=True)]
    lost = sum(tally.conflicts for _, tallies in runs for tally in tallies)
    split = {
        part: round(
            median(
                1e3 * sum(tally.split_s[part] for tally in tallies) / len(tallies)
                for _, tallies in runs
            ),
            1,
        )
        for part in PARTS
    }
    return {
        "placements_per_s": round(median(rates)),
        "conflict_rate": round(lost / max(1, lost + sum(placed)), 4),
        "split_ms": split,
    }
