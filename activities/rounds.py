"""One partition's rounds in this process: its index of machines, and load, solve, commit, explain.

The index is a cache: it is refreshed before each round from what changed, and compared in full once
in a while. Losers of a commit give their room back and wait for the next round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from activities.collector import uncollected
from activities.echoes import Echoes
from activities.slices import FleetSlices
from domain.fleet import ClaimResult, PendingTask, Proposal
from domain.reasons import Reason
from domain.verdict import Verdict
from placement.round import RoundResult
from store.bell import bell_idle
from store.claims import PROPOSALS_PER_TRANSACTION_MAX, Claimed, claim_batch
from store.columns import changed_columns, fleet_columns
from store.cooldowns import cooling
from store.session import reading
from store.verdicts import record_verdicts
from store.waiting import ShapeSpecs, expired, next_due, pending

EXPIRED_TOLD_MAX = 1_000
"""Overdue rows told in one round; the others in the next."""
BATCHES = 2
"""Parts in which the claims of a large round are committed."""
BATCHED_AT_LEAST = 1_000
SHAPES_PASSED_MAX = 1_000
"""Shapes without a machine that one sweep passes over, before it begins again at the front."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a round has read: rows that wait, and who must not be offered what."""

    tasks: Sequence[PendingTask]
    full: bool
    """More rows may wait than were read."""
    cooling: Mapping[str, frozenset[str]]
    expired: tuple[str, ...]
    read_at: datetime


@dataclass(frozen=True, slots=True)
class Solved:
    """What a round wishes, and for whom."""

    tasks: Mapping[str, PendingTask]
    result: RoundResult
    more: bool
    """Rows wait behind those this round looked at, and the next one can get to them."""
    expired: tuple[str, ...]
    read_at: datetime


@dataclass(frozen=True, slots=True)
class Committed:
    """What the ledger made of it."""

    claims: Sequence[Claimed]
    clusters: frozenset[str]
    """Where there is something to deliver."""
    again: bool
    """Rows wait that no round has looked at as things stand."""
    asleep: bool
    next_due: datetime | None
    overdue: bool
    """Some rows are past their `not_after`."""

    @property
    def claimed(self) -> Sequence[ClaimResult]:
        """The answer to each wish."""
        return [one for claims in self.claims for one in claims.results]


@dataclass(slots=True)
class PartitionRounds:
    """The caller runs one round at a time.

    More rows may wait than one round looks at. Then the next one passes over the shapes that have
    just found no machine: a long block of them must not hide the rows behind it. A round that gets
    to the end of the queue ends the sweep, and the next begins at the front.
    """

    engine: Engine
    partition: int
    compare_every: timedelta
    tasks_max: int
    partitions: int = 1
    revision: int = -1
    compared_at: datetime | None = None
    passed: set[str] = field(default_factory=set)
    """Shapes that found no machine in this sweep."""
    specs: ShapeSpecs = field(default_factory=ShapeSpecs)
    index: FleetSlices = field(init=False)
    echoes: Echoes = field(default_factory=Echoes)

    def __post_init__(self) -> None:
        self.tasks_max = min(self.tasks_max, PROPOSALS_PER_TRANSACTION_MAX)
        self.index = FleetSlices(self.partition, self.partitions)

    def solve(self, now: datetime, seed: int) -> Solved:
        """Read what waits and what there is; decide."""
        return self.decide(self.load(now), seed)

    @uncollected()
    def load(self, now: datetime) -> Loaded:
        """Bring the index up to date, and read the rows of this round."""
        with reading(self.engine) as connection:
            self._refresh(connection, now)
            tasks = pending(
                connection, self.partition, now, self.tasks_max, self.passed, self.specs
            )
            overdue = expired(connection, self.partition, now, EXPIRED_TOLD_MAX)
            cool = _by_shape(cooling(connection, now))
        full = len(tasks) >= self.tasks_max
        return Loaded(tasks, full, cool, expired=tuple(overdue), read_at=now)

    @uncollected()
    def decide(self, loaded: Loaded, seed: int) -> Solved:
        """Place what was read, and take the room on the index."""
        result = self.index.place(loaded.tasks, seed, loaded.cooling)
        return Solved(
            tasks={task.key: task for task in loaded.tasks},
            result=result,
            more=self._sweep(loaded.tasks, result, full=loaded.full),
            expired=loaded.expired,
            read_at=loaded.read_at,
        )

    def commit(
        self, connection: Connection, solved: Solved, wakes: int | None, now: datetime
    ) -> Committed:
        """Claim what was decided, write the verdicts; sleep unless `wakes` is None or has moved."""
        claims = self.claim(connection, solved.result.placed, now)
        return self.conclude(connection, solved, (claims,), wakes, now)

    @uncollected()
    def claim(self, connection: Connection, placed: Sequence[Proposal], now: datetime) -> Claimed:
        """Claim what was decided, or one of its `batches`."""
        return claim_batch(connection, self.partition, placed, now)

    @uncollected()
    def conclude(
        self,
        connection: Connection,
        solved: Solved,
        claims: Sequence[Claimed],
        wakes: int | None,
        now: datetime,
    ) -> Committed:
        """Say why the others wait; sleep, where nothing is left to do."""
        results = [one for part in claims for one in part.results]
        lost = [one.key for one in results if one.number is None]
        verdicts = {**solved.result.verdicts, **dict.fromkeys(lost, _LOST)}
        record_verdicts(connection, verdicts, now)
        won = {one.key for one in results if one.number is not None}
        again = bool(lost) or solved.more
        asleep = (
            wakes is not None and not again and bell_idle(connection, self.partition, wakes, now)
        )
        return Committed(
            claims=claims,
            clusters=frozenset(p.cluster for p in solved.result.placed if p.key in won),
            again=again,
            asleep=asleep,
            next_due=next_due(connection, self.partition, solved.read_at),
            overdue=bool(solved.expired),
        )

    def settle(self, solved: Solved, claims: Sequence[Claimed]) -> None:
        """After the commits, with what they came to. All others give their room back."""
        won = {one.key for part in claims for one in part.results if one.number is not None}
        for proposal in solved.result.placed:
            if proposal.key not in won:
                spec = solved.tasks[proposal.key].spec
                self.index.release(proposal.cluster, proposal.machine, spec)
        for part in claims:
            self.echoes.committed(part, self.revision)

    def _sweep(self, tasks: Sequence[PendingTask], result: RoundResult, *, full: bool) -> bool:
        """Remember what found no machine; True when the next round can look further."""
        self.passed |= {task.shape for task in tasks if task.key in result.verdicts}
        if full and len(self.passed) <= SHAPES_PASSED_MAX:
            return True
        self.passed.clear()
        return full and bool(result.placed)

    def _refresh(self, connection: Connection, now: datetime) -> None:
        whole = self.compared_at is None or now - self.compared_at >= self.compare_every
        if whole:
            now_there = fleet_columns(connection)
            self.index.replace(now_there)
            self.compared_at = now
        else:
            now_there = changed_columns(connection, self.revision, self.echoes.known)
            self.index.refresh(now_there)
        self.revision = now_there.revision
        self.echoes.read(self.revision)


def batches(placed: Sequence[Proposal]) -> list[list[Proposal]]:
    """Few wishes together; many in parts about as large, each with all that is for its machines.

    So parts may be claimed side by side: they wait for each other only where they charge one team.
    """
    if len(placed) < BATCHED_AT_LEAST:
        return [list(placed)]
    parts: list[list[Proposal]] = [[] for _ in range(BATCHES)]
    part_of: dict[tuple[str, str], list[Proposal]] = {}
    for proposal in placed:
        machine = (proposal.cluster, proposal.machine)
        part = part_of.get(machine)
        if part is None:
            part = part_of[machine] = min(parts, key=len)
        part.append(proposal)
    return parts


def _by_shape(pairs: set[tuple[str, str]]) -> dict[str, frozenset[str]]:
    shapes: dict[str, set[str]] = {}
    for cluster, shape in pairs:
        shapes.setdefault(shape, set()).add(cluster)
    return {shape: frozenset(clusters) for shape, clusters in shapes.items()}


_LOST = Verdict(reason=Reason.LOST_RACE, detail="a machine was found, but the ledger said no")
