"""The claim transaction: room, quota and attempt number are taken together, or not at all.

Whole batches in a few statements. What a round proposes is only a wish: here the rows decide.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from domain.attempt import Phase
from domain.fleet import ClaimResult, Proposal
from domain.reasons import Reason
from domain.resources import COLUMNS
from domain.supervision import Reach
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
        self.free = [
            *(row.cap_cpu_milli - row.used_cpu_milli, row.cap_memory_mib - row.used_memory_mib),
            *(row.cap_gpu - row.used_gpu, row.cap_disk_mib - row.used_disk_mib),
            row.cap_net_mbps - row.used_net_mbps,
        ]
        self.free_extra: dict[str, int] = {}
        if row.cap_extra is not None:
            used = read_extra(row.used_extra)
            self.free_extra = {n: a - used.get(n, 0) for n, a in read_extra(row.cap_extra).items()}

    def give(self, vector: Sequence[int], extra: Mapping[str, int]) -> bool:
        """Take room for one more; False, and nothing taken, where it would be too much."""
        after = [have - asked for have, asked in zip(self.free, vector, strict=True)]
        if min(after) < 0:
            return False
        if any(self.free_extra.get(name, 0) < asked for name, asked in extra.items()):
            return False
        self.free = after
        for name, asked in extra.items():
            self.free_extra[name] -= asked
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
    extra = read_extra(task.extra)
    if not machine.give(vector, extra):
        return False
    room = Room(list(vector), extra)
    work.take_room(place, room, 1)
    work.charge(task.team, room, 1)
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
