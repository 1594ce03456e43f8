"""Enqueue, settle and withdraw: what task workflows ask of the ledger, several in one transaction.

Each is idempotent: asked again after a crash, it finds its work done and answers as before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from domain.attempt import EndKind, Phase, StopCause
from domain.claims import (
    Enqueue,
    Enqueued,
    Finish,
    LedgerAnswer,
    LedgerOperation,
    Requeue,
    Settle,
    Settled,
    SubmitRefusal,
    Withdraw,
    WithdrawAnswer,
    WithdrawCause,
    Withdrawn,
)
from domain.feasibility import nearest_miss, never_fits
from domain.ids import attempt_id, partition_of
from domain.reasons import Reason
from domain.resources import COLUMNS
from domain.shape import shape_digest
from domain.views import EventKind
from store.brake import brake_held
from store.classes import machine_classes, remember_holder, surely_held
from store.dialects import prepared_upsert
from store.lines import ClaimLine, TaskLine
from store.locking import Work
from store.mapping import (
    ending_text,
    extra_text,
    micros,
    neighbour_text,
    read_spent,
    spec_text,
)
from store.tables import SPEC, TASK
from store.transitions import (
    ENDINGS,
    close,
    finish,
    note,
    order_stop,
    record_ending,
    record_late,
    release,
    requeue,
    spend,
    touch,
)
from store.writing import write

OPERATIONS_PER_TRANSACTION_MAX = 1_000
_NEW_TASK_COLUMNS = (
    *("key", "team", "partition", "phase", "band", "service", "digest", "shape", "enqueued_at"),
    *("asked_at", "not_before", "not_after", "pending_since", "updated_at"),
    *("on_loss", "grace_s", "neighbour", *COLUMNS, "extra"),
)
_MAY_RUN_ON = (Reason.SUPERSEDED, Reason.MACHINE_LOST)
"""A lost machine's agent goes on under its lease: no grant tells it which numbers are closed."""
_ADD_TASKS = prepared_upsert(TASK, _NEW_TASK_COLUMNS)
_ADD_SPECS = prepared_upsert(SPEC, ("key", "body"))


@dataclass(frozen=True, slots=True)
class Applied:
    """The answers in the order asked, and whom the caller must tell after the commit."""

    answers: list[LedgerAnswer]
    rings: set[int]
    """Partitions whose bell is to be rung."""
    clusters: set[str]
    """Clusters with new orders: a hint is to be sent."""


def apply(
    connection: Connection, operations: Sequence[LedgerOperation], *, partitions: int, now: datetime
) -> Applied:
    """Carry out all of them, in their order, in this one transaction."""
    assert len(operations) <= OPERATIONS_PER_TRANSACTION_MAX, len(operations)
    work = Work(connection, micros(now))
    braked = any(_needs_brake(op) for op in operations) and brake_held(connection)
    refusals = _insert_new(work, operations, partitions)
    keys = {_key_of(op) for op in operations}
    work.lock_current(
        keys, {attempt_id(op.key, op.number) for op in operations if isinstance(op, Settle)}
    )
    answers: list[LedgerAnswer] = []
    for op in operations:
        match op:
            case Enqueue():
                answers.append(_enqueue(work, op, refusals))
            case Settle():
                answers.append(_settle(work, op, braked=braked))
            case Withdraw():
                answers.append(_withdraw(work, op))
    rings = write(work)
    return Applied(answers=answers, rings=rings, clusters=work.ordered)


def _key_of(op: LedgerOperation) -> str:
    return op.spec.key if isinstance(op, Enqueue) else op.key


def _needs_brake(op: LedgerOperation) -> bool:
    return isinstance(op, Settle) and op.ending.kind is EndKind.FENCED


# --- enqueue ----------------------------------------------------------------------------------


def _never_fitting(work: Work, new: Mapping[str, Enqueue]) -> dict[str, SubmitRefusal]:
    """The refusals of those that no machine could ever hold, by key."""
    shapes = {key: shape_digest(op.spec) for key, op in new.items()}
    held = surely_held(work.connection, set(shapes.values()))
    if held.issuperset(shapes.values()):
        return {}
    refusals: dict[str, SubmitRefusal] = {}
    classes = machine_classes(work.connection)
    for key, op in new.items():
        if shapes[key] in held:
            continue
        lost = never_fits(op.spec, classes)
        if lost is None:
            held.add(shapes[key])
            remember_holder(shapes[key], op.spec, classes)
            continue
        miss = nearest_miss(op.spec, classes)
        text = f"no machine could ever hold this task: {miss}"
        refusals[key] = SubmitRefusal(code="never_fits", message=text, lost=lost)
    return refusals


def _insert_new(
    work: Work, operations: Sequence[LedgerOperation], partitions: int
) -> dict[str, SubmitRefusal]:
    """Insert the rows that are missing; the refusals of those that no machine could ever hold."""
    asked: dict[str, Enqueue] = {}
    for op in operations:
        if isinstance(op, Enqueue):
            asked.setdefault(op.spec.key, op)
    if not asked:
        return {}
    there = work.peek_tasks(asked)
    new = {key: op for key, op in sorted(asked.items()) if key not in there}
    refusals = _never_fitting(work, new)
    rows = [_new_row(op, partitions, work.now) for k, op in new.items() if k not in refusals]
    if not rows:
        return refusals
    # Another transaction may insert the same key meanwhile: then its row stands, and ours is read.
    _ADD_TASKS.run_many(work.connection, rows)
    specs = [{"key": r["key"], "body": spec_text(new[r["key"]].spec)} for r in rows]
    _ADD_SPECS.run_many(work.connection, specs)
    return refusals


def _new_row(op: Enqueue, partitions: int, now: int) -> dict[str, Any]:
    spec, at = op.spec, micros(op.at)
    cpu_milli, memory_mib, gpu, disk_mib, net_mbps = spec.resources.vector()
    return {
        "key": spec.key,
        "team": spec.team,
        "partition": partition_of(spec.team, partitions),
        "phase": Phase.PENDING.value,
        "band": int(spec.priority),
        "service": spec.constraints.service,
        "digest": op.digest,
        "shape": shape_digest(spec),
        "enqueued_at": at,
        "asked_at": at,
        "not_before": min(at, now),  # Clocks of two processes differ: it is due at once.
        "not_after": None if op.not_after is None else micros(op.not_after),
        "pending_since": now,
        "updated_at": now,
        "on_loss": spec.on_loss.value,
        "grace_s": spec.grace_s,
        "neighbour": neighbour_text(spec),
        "cpu_milli": cpu_milli,
        "memory_mib": memory_mib,
        "gpu": gpu,
        "disk_mib": disk_mib,
        "net_mbps": net_mbps,
        "extra": extra_text(spec.resources.extra),
    }


def _enqueue(work: Work, op: Enqueue, refusals: dict[str, SubmitRefusal]) -> Enqueued:
    task = work.tasks.get(op.spec.key)
    if task is None:
        return Enqueued(closed=0, refusal=refusals[op.spec.key])
    if task.digest != op.digest:
        text = f"{task.key} was submitted before with another body"
        return Enqueued(closed=0, refusal=SubmitRefusal(code="conflict", message=text))
    spent = read_spent(task.spent)
    if task.final:
        return Enqueued(closed=task.closed, final=task.read_outcome, spent=spent)
    task.asked_at = max(task.asked_at, micros(op.at))
    touch(work, task)
    if task.pending:
        if task.events == 0:
            note(work, task, EventKind.ENQUEUED)
        work.woken.add(task.partition)
        return Enqueued(closed=task.closed, spent=spent)
    claim = work.claim_of(task)
    if not claim.inquiry:
        note(work, task, EventKind.ADOPTED, claim.number)
    claim.inquiry = claim.adopted = claim.to_deliver = 1
    claim.changed = True
    work.ordered.add(claim.cluster)
    return Enqueued(closed=task.closed, live=claim.live, spent=spent)


# --- settle -----------------------------------------------------------------------------------


def _settle(work: Work, op: Settle, *, braked: bool) -> Settled:
    task = work.tasks.get(op.key)
    claim = work.claims.get(attempt_id(op.key, op.number))
    if task is None or claim is None or claim.cluster != op.cluster:
        return _not_mine(task)
    if _settled_before(claim, op):
        return _again(work, task, op)
    if not claim.open or op.late:
        return _late(work, task, claim, op)
    assert task.claimed, (task, claim)
    assert task.number == claim.number, (task, claim)
    if op.ending.kind in ENDINGS:
        release(work, claim)
    elif not _may_replace(claim, braked=braked):
        return _not_mine(task)
    else:
        close(work, claim)
        if claim.fenced in _MAY_RUN_ON:  # At the next contact it is to stop.
            order_stop(work, None, claim, StopCause.SUPERSEDED)
    if op.ending.kind is EndKind.REFUSED:
        _count_refusal(work, task, claim, op)
    record_ending(
        work,
        task,
        claim,
        op.ending,
        settled_at=op.at,
        started_at=op.started_at,
        ended_at=op.ended_at,
    )
    _then(work, task, op)
    return Settled(mine=True, closed=task.closed)


def _settled_before(claim: ClaimLine, op: Settle) -> bool:
    """The same settle, asked again because its answer was lost: the instant is then another."""
    return claim.ending == ending_text(op.ending) and not claim.open and not op.late


def _again(work: Work, task: TaskLine, op: Settle) -> Settled:
    """Mine if what it wants holds, or still can; a workflow that was reset may want another end."""
    if not task.final and isinstance(op.then, Finish):
        if not task.pending or task.number != op.number:
            return _not_mine(task)
        finish(work, task, op.then.outcome)
    return Settled(mine=True, closed=task.closed, final=task.read_outcome)


def _may_replace(claim: ClaimLine, *, braked: bool) -> bool:
    """A number closes without an ending only while the row says that it is lost."""
    if claim.fenced is None:
        return False
    return not braked or bool(claim.vouched) or claim.fenced == Reason.SUPERSEDED


def _late(work: Work, task: TaskLine, claim: ClaimLine, op: Settle) -> Settled:
    if op.ending.kind in ENDINGS:
        was_open = claim.open
        release(work, claim)
        record_late(work, task, claim, op.ending)
        if was_open:  # The workflow was wrong to call it late: nothing is left to wait for.
            requeue(work, task, work.now, task.not_after)
    return _not_mine(task)


def _not_mine(task: TaskLine | None) -> Settled:
    if task is None:
        return Settled(mine=False, closed=0)
    return Settled(mine=False, closed=task.closed, final=task.read_outcome)


def _count_refusal(work: Work, task: TaskLine, claim: ClaimLine, op: Settle) -> None:
    if op.ending.reason is not Reason.AGENT_STOP_CAME_FIRST:
        work.refused.append((claim.cluster, task.shape))


def _then(work: Work, task: TaskLine, op: Settle) -> None:
    match op.then:
        case Requeue() as again:
            spend(task, op.ending)
            not_after = None if again.not_after is None else micros(again.not_after)
            requeue(work, task, micros(again.not_before), not_after)
        case Finish(outcome=outcome):
            finish(work, task, outcome)


# --- withdraw ---------------------------------------------------------------------------------


def _withdraw(work: Work, op: Withdraw) -> Withdrawn:
    task = work.tasks.get(op.key)
    if task is None:
        return Withdrawn(answer=WithdrawAnswer.NO_EFFECT)
    if task.final:
        outcome = task.read_outcome
        mine = outcome == op.outcome
        answer = WithdrawAnswer.WITHDRAWN if mine else WithdrawAnswer.FINAL
        return Withdrawn(answer=answer, final=outcome)
    if task.pending:
        return _withdraw_pending(work, task, op)
    if op.cause is WithdrawCause.EXPIRE:
        return Withdrawn(answer=WithdrawAnswer.NO_EFFECT)
    claim = work.claim_of(task)
    late = op.cause is WithdrawCause.LATE_SUCCESS
    order_stop(work, task, claim, StopCause.SUPERSEDED if late else StopCause.CANCEL)
    if op.abandon and op.cause is WithdrawCause.CANCEL:
        return _abandon(work, task, claim, op)
    return Withdrawn(answer=WithdrawAnswer.STOPPING, live=claim.live)


def _withdraw_pending(work: Work, task: TaskLine, op: Withdraw) -> Withdrawn:
    overdue = task.not_after is not None and task.not_after <= max(micros(op.at), work.now)
    if op.cause is WithdrawCause.EXPIRE and not overdue:
        return Withdrawn(answer=WithdrawAnswer.NO_EFFECT)
    finish(work, task, op.outcome)
    return Withdrawn(answer=WithdrawAnswer.WITHDRAWN, final=op.outcome)


def _abandon(work: Work, task: TaskLine, claim: ClaimLine, op: Withdraw) -> Withdrawn:
    """The stop order stays: it is delivered at the next contact."""
    close(work, claim)
    changed = {"reason": Reason.MAY_STILL_RUN, "number": claim.number}
    outcome = op.outcome.model_copy(update=changed)
    finish(work, task, outcome)
    return Withdrawn(answer=WithdrawAnswer.ABANDONED, final=outcome)
