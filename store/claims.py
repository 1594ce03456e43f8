"""The claim transaction: room, quota and attempt number are taken together, or not at all.

Whole batches in a few statements. What a round proposes is only a wish: here the rows decide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from domain.attempt import Phase
from domain.fleet import ClaimResult, Proposal
from domain.reasons import Reason
from domain.resources import COLUMNS
from domain.supervision import Reach
from store.dialects import by_index, next_revision
from store.locking import Work, tuples_by_key
from store.machines import CAPACITY
from store.mapping import micros, place_of, read_extra
from store.minting import Won, mint_many
from store.prepared import Prepared, one_of
from store.room import Room
from store.tables import CLUSTER, MACHINE, TASK
from store.writing import USED, write_usage, write_used

PROPOSALS_PER_TRANSACTION_MAX = 10_000

_SHARE_CLUSTERS = Prepared(
    select(CLUSTER.c.name)
    .where(one_of(CLUSTER.c.name))
    .where(CLUSTER.c.state == Reach.REACHABLE.value)
    .order_by(CLUSTER.c.name)
    .with_for_update(read=True)
)
_LOCK_MACHINES = Prepared(
    select(
        MACHINE.c.place,
        *(MACHINE.c[name] for name in (*CAPACITY, *USED)),
        *(MACHINE.c.cap_extra, MACHINE.c.used_extra),
        *(MACHINE.c.cordoned, MACHINE.c.reachable, MACHINE.c.revision),
    )
    .where(one_of(MACHINE.c.place))
    .order_by(MACHINE.c.place)
    .with_for_update(key_share=True)
)
_LOCK_TASKS = Prepared(
    select(
        *(TASK.c.key, TASK.c.team, TASK.c.partition, TASK.c.phase, TASK.c.number),
        *(TASK.c.not_before, TASK.c.extra, *(TASK.c[name] for name in COLUMNS)),
    )
    .where(one_of(TASK.c.key))
    .order_by(TASK.c.key)
    .with_for_update(key_share=True)
)
_TEAM, _PARTITION, _PHASE, _NUMBER, _NOT_BEFORE, _EXTRA = range(1, 7)
_VECTOR = slice(7, 7 + len(COLUMNS))
_CORDONED, _REACHABLE = -3, -2
"""Where a fact stands in those rows."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a batch of claims came to, and what it made of the machines it used."""

    results: list[ClaimResult]
    """One for each proposal, in their order."""
    revision: int = 0
    """What the machines used bear from now on."""
    before: Mapping[str, int] = field(default_factory=dict)
    """By place, the revision that each of them bore when this transaction locked it."""


class _Machine:
    """A machine that may be used, and what is left of it for this transaction to give."""

    __slots__ = ("free", "free_extra", "had", "revision")

    def __init__(self, row: Sequence[Any]) -> None:
        _, cpu, memory, gpu, disk, net, *used, cap_extra, used_extra, _, _, revision = row
        self.had = (cpu - used[0], memory - used[1], gpu - used[2], disk - used[3], net - used[4])
        self.free = self.had
        self.free_extra: dict[str, int] = {}
        self.revision: int = revision
        if cap_extra is not None:
            taken = read_extra(used_extra)
            self.free_extra = {n: a - taken.get(n, 0) for n, a in read_extra(cap_extra).items()}

    def give(self, vector: Sequence[int], extra: str | None) -> bool:
        """Take room for one more; False, and nothing taken, where it would be too much."""
        have = self.free
        after = (
            *(have[0] - vector[0], have[1] - vector[1], have[2] - vector[2]),
            *(have[3] - vector[3], have[4] - vector[4]),
        )
        if min(after) < 0:
            return False
        if extra is not None:
            asked = read_extra(extra)
            if any(self.free_extra.get(n, 0) < amount for n, amount in asked.items()):
                return False
            for name, amount in asked.items():
                self.free_extra[name] -= amount
        self.free = after
        return True

    def given(self) -> Room:
        """What this transaction has taken of the standard quantities."""
        return Room([had - left for had, left in zip(self.had, self.free, strict=True)])


def claim(
    connection: Connection, partition: int, proposals: Sequence[Proposal], now: datetime
) -> list[ClaimResult]:
    """Claim what still can be claimed, in the order proposed; the rest stays pending.

    The caller hints at the clusters of the claims made.
    """
    return claim_batch(connection, partition, proposals, now).results


def claim_batch(
    connection: Connection, partition: int, proposals: Sequence[Proposal], now: datetime
) -> Claimed:
    """`claim`, for one who keeps an index and wants to know which machines it still knows."""
    assert len(proposals) <= PROPOSALS_PER_TRANSACTION_MAX, len(proposals)
    if not proposals:
        return Claimed([])
    by_index(connection, len(proposals))
    work = Work(connection, micros(now))
    reachable = _reachable(connection, {p.cluster for p in proposals})
    tasks = _waiting(work, partition, {p.key for p in proposals})
    places = [place_of(p.cluster, p.machine) for p in proposals]
    wanted = {at for at, p in zip(places, proposals, strict=True) if p.cluster in reachable}
    machines = _machines(connection, wanted)
    won: list[Won] = []
    results = []
    for proposal, place in zip(proposals, places, strict=True):
        key = proposal.key
        task, there = tasks.get(key), machines.get(place)
        if task is None or there is None or not there.give(task[_VECTOR], task[_EXTRA]):
            results.append(ClaimResult(key, None, Reason.LOST_RACE))
            continue
        del tasks[key]
        _note(work, task, place)
        won.append((proposal.cluster, proposal.machine, work.now, key))
        results.append(ClaimResult(key, task[_NUMBER] + 1))
    if not won:
        return Claimed(results)
    return Claimed(results, *_write(work, won, machines))


def _note(work: Work, task: Sequence[Any], place: str) -> None:
    """Charge the team; of the machine's room only what `_Machine` does not add up itself."""
    charged = work.charged.get(task[_TEAM])
    if charged is None:
        charged = work.charged[task[_TEAM]] = Room()
    charged.add_vector(task[_VECTOR])
    if task[_EXTRA] is not None:
        extra = Room(extra=read_extra(task[_EXTRA]))
        charged.add(extra)
        work.take_room(place, extra, 1)


def _write(
    work: Work, won: Sequence[Won], machines: Mapping[str, _Machine]
) -> tuple[int, dict[str, int]]:
    """Write it all; the revision of the machines used, and what it was before."""
    used = {place_of(cluster, machine) for cluster, machine, _, _ in won}
    for place in used:
        given = machines[place].given()
        if place in work.used:
            given.add(work.used[place])
        work.used[place] = given
    mint_many(work.connection, won)
    revision = next_revision(work.connection)
    write_used(work, revision)
    write_usage(work)
    return revision, {place: machines[place].revision for place in used}


def _waiting(work: Work, partition: int, keys: set[str]) -> dict[str, Sequence[Any]]:
    """The locked rows of those that wait here and are due, by key."""
    return {
        row[0]: row
        for row in tuples_by_key(work.connection, _LOCK_TASKS, keys)
        if row[_PHASE] == Phase.PENDING
        and row[_PARTITION] == partition
        and row[_NOT_BEFORE] <= work.now
    }


def _reachable(connection: Connection, clusters: set[str]) -> set[str]:
    """Locked, so that none of them is marked silent while this transaction gives it work."""
    return {row[0] for row in tuples_by_key(connection, _SHARE_CLUSTERS, clusters)}


def _machines(connection: Connection, places: set[str]) -> dict[str, _Machine]:
    """Those that may be used, locked, by place."""
    rows = tuples_by_key(connection, _LOCK_MACHINES, places)
    return {row[0]: _Machine(row) for row in rows if row[_REACHABLE] and not row[_CORDONED]}
