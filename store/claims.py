"""The claim transaction: room, quota and attempt number are taken together, or not at all.

Whole batches in a few statements. What a round proposes is only a wish: here the rows decide.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from domain.attempt import Phase
from domain.fleet import ClaimResult, Proposal
from domain.reasons import Reason
from domain.resources import COLUMNS
from domain.supervision import Reach
from store.dialects import by_index
from store.locking import Work, rows_by_key
from store.machines import CAPACITY
from store.mapping import micros, place_of, read_extra
from store.minting import Won, mint_many
from store.prepared import Prepared, one_of
from store.room import Room
from store.tables import CLUSTER, MACHINE, TASK
from store.writing import USED, write_usage, write_used

PROPOSALS_PER_TRANSACTION_MAX = 5_000

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
        *(MACHINE.c.cordoned, MACHINE.c.reachable),
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


class _Machine:
    """A machine that may be used, and what is left of it for this transaction to give."""

    def __init__(self, row: Any) -> None:
        values = tuple(row)
        self.free = [there - used for there, used in zip(values[1:6], values[6:11], strict=True)]
        self.free_extra: dict[str, int] = {}
        if row.cap_extra is not None:
            used = read_extra(row.used_extra)
            self.free_extra = {n: a - used.get(n, 0) for n, a in read_extra(row.cap_extra).items()}

    def give(self, vector: Sequence[int], extra: str | None) -> bool:
        """Take room for one more; False, and nothing taken, where it would be too much."""
        have = self.free
        after = [
            *(have[0] - vector[0], have[1] - vector[1], have[2] - vector[2]),
            *(have[3] - vector[3], have[4] - vector[4]),
        ]
        if min(after) < 0:
            return False
        asked = read_extra(extra)
        if asked and any(self.free_extra.get(n, 0) < amount for n, amount in asked.items()):
            return False
        self.free = after
        for name, amount in asked.items():
            self.free_extra[name] -= amount
        return True


def claim(
    connection: Connection, partition: int, proposals: Sequence[Proposal], now: datetime
) -> list[ClaimResult]:
    """Claim what still can be claimed, in the order proposed; the rest stays pending.

    The caller hints at the clusters of the claims made.
    """
    assert len(proposals) <= PROPOSALS_PER_TRANSACTION_MAX, len(proposals)
    if not proposals:
        return []
    by_index(connection, len(proposals))
    work = Work(connection, micros(now))
    reachable = _reachable(connection, {p.cluster for p in proposals})
    tasks = _waiting(work, partition, {p.key for p in proposals})
    places = {place_of(p.cluster, p.machine) for p in proposals if p.cluster in reachable}
    machines = _machines(connection, places)
    won: list[Won] = []
    results = []
    for proposal in proposals:
        key, cluster, machine = proposal.key, proposal.cluster, proposal.machine
        task, place = tasks.get(key), place_of(cluster, machine)
        there = machines.get(place)
        if task is None or there is None or not _take(work, task, there, place):
            results.append(ClaimResult(key, None, Reason.LOST_RACE))
            continue
        del tasks[key]
        won.append((cluster, machine, work.now, key))
        results.append(ClaimResult(key, task.number + 1))
    if won:
        mint_many(connection, won)
        write_used(work, locked=True)
        write_usage(work)
    return results


def _take(work: Work, task: Any, machine: _Machine, place: str) -> bool:
    """Room on the machine, charged to the team; False where there is not enough."""
    vector = task[-len(COLUMNS) :]
    if not machine.give(vector, task.extra):
        return False
    for sums, name in ((work.used, place), (work.charged, task.team)):
        room = sums.get(name)
        if room is None:
            room = sums[name] = Room()
        room.add_vector(vector)
        if task.extra is not None:
            room.add(Room(extra=read_extra(task.extra)))
    return True


def _waiting(work: Work, partition: int, keys: set[str]) -> dict[str, Any]:
    """The locked rows of those that wait here and are due, by key."""
    rows = rows_by_key(work.connection, _LOCK_TASKS, keys)
    return {
        row.key: row
        for row in rows
        if row.phase == Phase.PENDING and row.partition == partition and row.not_before <= work.now
    }


def _reachable(connection: Connection, clusters: set[str]) -> set[str]:
    """Locked, so that none of them is marked silent while this transaction gives it work."""
    return {row.name for row in rows_by_key(connection, _SHARE_CLUSTERS, clusters)}


def _machines(connection: Connection, places: set[str]) -> dict[str, _Machine]:
    """Those that may be used, locked, by place."""
    rows = rows_by_key(connection, _LOCK_MACHINES, places)
    return {row.place: _Machine(row) for row in rows if row.reachable and not row.cordoned}
