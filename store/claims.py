"""The claim transaction: room, quota and attempt number are taken together, or not at all.

Whole batches in a few statements. What a round proposes is only a wish: here the rows decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from domain.fleet import ClaimResult, Proposal
from domain.reasons import Reason
from domain.supervision import Reach
from domain.task import TaskSpec
from store.lines import NewClaim
from store.locking import Work, rows_by_key
from store.machines import CAPACITY
from store.mapping import extra_text, micros, neighbour_text, place_of
from store.prepared import Prepared, one_of
from store.room import Room
from store.tables import CLUSTER, MACHINE
from store.transitions import mint
from store.waiting import specs
from store.writing import USED, write

PROPOSALS_PER_TRANSACTION_MAX = 5_000

_SHARE_CLUSTERS = Prepared(
    select(CLUSTER.c.name, CLUSTER.c.epoch)
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


@dataclass(frozen=True, slots=True)
class _Machine:
    usable: bool
    capacity: Room
    used: Room


def claim(
    connection: Connection, partition: int, proposals: Sequence[Proposal], now: datetime
) -> list[ClaimResult]:
    """Claim what still can be claimed, in the order proposed; the rest stays pending.

    The caller hints at the clusters of the claims made.
    """
    assert len(proposals) <= PROPOSALS_PER_TRANSACTION_MAX, len(proposals)
    work = Work(connection, micros(now))
    epochs = _epochs(connection, {p.cluster for p in proposals})
    keys = {p.key for p in proposals}
    work.lock_tasks(keys)
    asked = specs(connection, [key for key, task in work.tasks.items() if task.pending])
    machines = _machines(connection, {place_of(p.cluster, p.machine) for p in proposals})
    results = []
    for proposal in proposals:
        number = None
        task = work.tasks.get(proposal.key)
        if task is not None and task.pending and task.partition == partition:
            number = _claim(work, proposal, asked[proposal.key], epochs, machines)
        reason = Reason.LOST_RACE if number is None else None
        results.append(ClaimResult(key=proposal.key, number=number, reason=reason))
    write(work)
    return results


def _claim(
    work: Work,
    proposal: Proposal,
    spec: TaskSpec,
    epochs: dict[str, int],
    machines: dict[str, _Machine],
) -> int | None:
    task = work.tasks[proposal.key]
    epoch = epochs.get(proposal.cluster)
    machine = machines.get(place_of(proposal.cluster, proposal.machine))
    if epoch is None or machine is None or not machine.usable or task.not_before > work.now:
        return None
    ask = Room.of(spec.resources)
    if not machine.used.holds(ask, machine.capacity):
        return None
    machine.used.add(ask)
    new = NewClaim(
        task=task,
        cluster=proposal.cluster,
        machine=proposal.machine,
        epoch=epoch,
        on_loss=spec.on_loss.value,
        grace_s=spec.grace_s,
        neighbour=neighbour_text(spec),
        room=ask,
        extra=extra_text(spec.resources.extra),
    )
    return mint(work, new)


def _epochs(connection: Connection, clusters: set[str]) -> dict[str, int]:
    """Locked, so that none of them is marked silent while this transaction gives it work."""
    return {row.name: row.epoch for row in rows_by_key(connection, _SHARE_CLUSTERS, clusters)}


def _machines(connection: Connection, places: set[str]) -> dict[str, _Machine]:
    rows = rows_by_key(connection, _LOCK_MACHINES, places)
    return {row.place: _machine(row) for row in rows}


def _machine(row: Any) -> _Machine:
    values = tuple(row)
    return _Machine(
        usable=bool(row.reachable) and not row.cordoned,
        capacity=Room.of_row(values[1:6], row.cap_extra),
        used=Room.of_row(values[6:11], row.used_extra),
    )
