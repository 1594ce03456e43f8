"""Attempts whose cluster, machine or workflow is gone: which numbers may be closed, who is told.

What may be replaced is decided by the cluster's row and the brake, read and locked by every page;
so no page of a fenced state commits after that state has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from domain.attempt import Outcome, Phase, StopCause
from domain.ids import attempt_id
from domain.protocol import Orphan
from domain.reasons import Reason
from domain.supervision import Reach
from domain.task import OnLoss
from domain.views import EventKind
from store.brake import brake_held
from store.locking import Work
from store.mapping import micros, split_place
from store.tables import CLAIM, CLUSTER, HELD
from store.transitions import (
    finish,
    note,
    order_stop,
    record_ending,
    record_late,
    release,
)
from store.writing import write

PAGE_MAX = 500
GONE_GRACE_S = 5
"""A row enqueued so lately has a workflow: the news of its absence is older."""


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An open number that its workflow must be told to close."""

    key: str
    number: int
    cluster: str
    machine: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class LossPage:
    """Whom to tell, again and again until each has settled; and where the next page begins."""

    lost: list[LostAttempt]
    after: str | None
    """The cursor of the next page; None when this was the last."""


def loss_page(
    connection: Connection, cluster: str, now: datetime, *, after: str = "", limit: int = PAGE_MAX
) -> LossPage:
    """Mark what the cluster's row says is lost, and list every marked number that is still open.

    Suspect: only attempts that asked to be replaced at once. Fenced: all but those that wait for
    confirmation. Confirmed by somebody: these as well. While the brake holds, none of the fenced.
    """
    braked = brake_held(connection)
    row = connection.execute(
        select(CLUSTER.c.state, CLUSTER.c.silent_since)
        .where(CLUSTER.c.name == cluster)
        .with_for_update(read=True)
    ).one_or_none()
    if row is None:
        return LossPage(lost=[], after=None)
    rows = connection.execute(
        select(CLAIM.c.attempt, CLAIM.c.key)
        .where(CLAIM.c.cluster == cluster)
        .where(HELD)
        .where(CLAIM.c.standing == "open")
        .where(CLAIM.c.attempt > after)
        .where(_concerned(row, braked=braked))
        .order_by(CLAIM.c.attempt)
        .limit(limit)
    ).all()
    work = Work(connection, micros(now))
    work.lock_tasks({found.key for found in rows})
    work.lock_claims([found.attempt for found in rows])
    lost = [told for found in rows if (told := _mark(work, found.attempt))]
    write(work)
    next_page = rows[-1].attempt if len(rows) == limit else None
    return LossPage(lost=lost, after=next_page)


def orphan(connection: Connection, cluster: str, message: Orphan, now: datetime) -> set[int]:
    """An attempt has ended and its workflow does not exist: release the claim, close the row.

    When a new workflow has adopted it meanwhile, the agent is asked to report again instead.
    The answer: partitions to be rung.
    """
    work = Work(connection, micros(now))
    attempt = attempt_id(message.key, message.number)
    work.lock_tasks([message.key])
    work.lock_claims([attempt])
    task, claim = work.tasks.get(message.key), work.claims.get(attempt)
    if task is None or claim is None or claim.cluster != cluster or not claim.held:
        return set()
    if claim.open and claim.adopted:
        claim.adopted = 0
        claim.inquiry = claim.to_deliver = 1
        claim.changed = True
        write(work)
        return set()
    current = claim.open
    release(work, claim)
    if current:
        stamp = message.at
        record_ending(work, task, claim, message.ending, settled_at=stamp, ended_at=stamp)
        finish(work, task, _gone_outcome(claim.number))
    else:
        record_late(work, task, claim, message.ending)
    return write(work)


def gone(connection: Connection, keys: Sequence[str], now: datetime) -> tuple[set[int], set[str]]:
    """These tasks have rows but no workflows: waiting ones end, the others are told to stop.

    Partitions to be rung, and clusters to hint at.
    """
    work = Work(connection, micros(now))
    work.lock_current(set(keys))
    for task in work.tasks.values():
        if task.final or task.asked_at > work.now - GONE_GRACE_S * 1_000_000:
            continue
        if task.pending:
            finish(work, task, _gone_outcome(task.number))
        else:
            order_stop(work, task, work.claim_of(task), StopCause.WORKFLOW_GONE)
    return write(work), work.ordered


def _concerned(row: Any, *, braked: bool) -> Any:
    superseded = CLAIM.c.on_loss == OnLoss.REPLACE_AT_ONCE.value
    told = (CLAIM.c.vouched == 1) | (CLAIM.c.fenced == Reason.SUPERSEDED.value)
    if row.state == Reach.CONFIRMED:
        return told
    if row.state == Reach.SUSPECT and row.silent_since is not None:
        return told | superseded
    if row.state == Reach.FENCED:
        if braked:
            return told | superseded
        return told | (CLAIM.c.on_loss != OnLoss.WAIT.value)
    return told


def _mark(work: Work, attempt: str) -> LostAttempt | None:
    claim = work.claims[attempt]
    task = work.tasks[claim.key]
    if not claim.open:  # Settled between the reading and the lock.
        return None
    if claim.fenced is None:
        at_once = claim.on_loss == OnLoss.REPLACE_AT_ONCE
        reason = Reason.SUPERSEDED if at_once else Reason.CLUSTER_LOST
        claim.fenced = reason.value
        claim.changed = True
        note(work, task, EventKind.FENCED, claim.number, reason.value)
    cluster, machine = split_place(claim.place)
    return LostAttempt(claim.key, claim.number, cluster, machine, Reason(claim.fenced))


def _gone_outcome(number: int) -> Outcome:
    return Outcome(phase=Phase.CANCELLED, reason=Reason.WORKFLOW_GONE, number=number)
