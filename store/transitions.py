"""The rules by which rows of the ledger change, on rows already locked.

A number closes once, a claim gives its room back once, a final row stays. Knows no statement.
"""

from datetime import datetime

from domain.attempt import Ending, EndKind, Outcome, Phase, StopCause
from domain.ids import attempt_id
from domain.reasons import Reason
from domain.stamps import shown_span
from domain.views import EventKind
from store.lines import ClaimLine, NewClaim, OfferState, Standing, TaskLine
from store.locking import Work
from store.mapping import ending_text, instant, micros, read_spent

EVENTS_KEPT_MAX = 100
"""The newest so many events of a task are kept."""

NEW_CLAIM_COLUMNS = (
    *("attempt", "key", "number", "team", "cluster", "place", "epoch", "standing", "state"),
    *("on_loss", "grace_s", "neighbour", "cpu_milli", "memory_mib", "gpu", "disk_mib"),
    *("net_mbps", "extra", "claimed_at"),
)
"""What `mint` says of a claim; the other columns begin as the table says."""

ENDINGS = frozenset({EndKind.EXITED, EndKind.REFUSED, EndKind.STOPPED, EndKind.LOST})
"""The attempt certainly runs no more: its room is free."""


def note(
    work: Work,
    task: TaskLine,
    kind: EventKind,
    number: int = 0,
    detail: str = "",
    at: int | None = None,
) -> None:
    """Write a transition down. `at`: when it happened, where that was before now."""
    work.events.append(
        {
            "key": task.key,
            "slot": task.events % EVENTS_KEPT_MAX,
            "seq": task.events,
            "at": work.now if at is None else at,
            "kind": kind.value,
            "number": number,
            "detail": detail,
        }
    )
    task.events += 1
    touch(work, task)


def touch(work: Work, task: TaskLine) -> None:
    """The row will be written."""
    task.updated_at = work.now
    task.changed = True


def mint(work: Work, new: NewClaim) -> int:
    """Claim a machine for a pending task: the next number, never one that was used before."""
    task = new.task
    assert task.pending, task
    task.number += 1
    task.phase = Phase.OFFERED
    task.cluster, task.machine = new.cluster, new.machine
    work.take_room(new.place, new.room, 1)
    work.charge(task.team, new.room, 1)
    cpu_milli, memory_mib, gpu, disk_mib, net_mbps = new.room.vector
    work.new_claims.append(
        {
            "attempt": attempt_id(task.key, task.number),
            "key": task.key,
            "number": task.number,
            "team": task.team,
            "cluster": new.cluster,
            "place": new.place,
            "epoch": new.epoch,
            "standing": Standing.OPEN.value,
            "state": OfferState.OFFERED.value,
            "on_loss": new.on_loss,
            "grace_s": new.grace_s,
            "neighbour": new.neighbour,
            "cpu_milli": cpu_milli,
            "memory_mib": memory_mib,
            "gpu": gpu,
            "disk_mib": disk_mib,
            "net_mbps": net_mbps,
            "extra": new.extra,
            "claimed_at": work.now,
        }
    )
    work.ordered.add(new.cluster)
    note(work, task, EventKind.PLACED, task.number, new.place)
    return task.number


def close(work: Work, claim: ClaimLine) -> None:
    """The number is closed, but the attempt may still run: it keeps its room, no quota."""
    assert claim.open, claim
    work.charge(claim.team, claim.room, -1)
    claim.standing = Standing.REMNANT
    claim.changed = True
    work.room_freed = True  # Quota is room too.
    if not claim.holds_room:
        work.take_room(claim.place, claim.room, -1)


def release(work: Work, claim: ClaimLine) -> None:
    """The attempt certainly runs no more: everything it held is free. Once only."""
    if not claim.held:
        return
    if claim.open:
        work.charge(claim.team, claim.room, -1)
    if claim.holds_room:
        work.take_room(claim.place, claim.room, -1)
    claim.standing = Standing.RELEASED
    claim.to_deliver = 0
    claim.inquiry = 0
    claim.changed = True


def vouch(work: Work, claim: ClaimLine, reason: Reason) -> None:
    """Somebody says that it does not run. It is listed at the next contact all the same."""
    if not claim.held or claim.vouched:
        return
    if not claim.open:
        work.take_room(claim.place, claim.room, -1)
    else:
        claim.fenced = reason.value
    claim.vouched = 1
    claim.changed = True


def requeue(work: Work, task: TaskLine, not_before: int, not_after: int | None) -> None:
    """It waits again."""
    assert not task.final, task
    task.phase = Phase.PENDING
    task.not_before, task.not_after = not_before, not_after
    task.pending_since = work.now
    task.cluster = task.machine = None
    work.woken.add(task.partition)
    note(work, task, EventKind.WAITS_AGAIN, task.number)


def finish(work: Work, task: TaskLine, outcome: Outcome) -> None:
    """The end of the task."""
    assert not task.final, task
    assert outcome.phase.final, outcome
    task.phase = outcome.phase
    task.outcome = outcome.model_dump_json(exclude_defaults=True)
    task.ended_at = work.now
    note(work, task, EventKind.FINISHED, task.number, outcome.reason or outcome.phase)


def order_stop(work: Work, task: TaskLine | None, claim: ClaimLine, cause: StopCause) -> bool:
    """Write a stop order. The first cause stays, except that cancel overrides."""
    if not claim.held:
        return False
    overrides = cause is StopCause.CANCEL and claim.stop_cause != StopCause.CANCEL
    if claim.stop_cause is not None and not overrides:
        return False
    claim.stop_cause = cause.value
    claim.stop_sent, claim.stop_epoch = 0, None
    claim.to_deliver = 1
    claim.changed = True
    work.ordered.add(claim.cluster)
    if task is not None:
        if claim.open:
            task.phase = Phase.STOPPING
        note(work, task, EventKind.STOP_ORDERED, claim.number, cause.value)
    return True


def withdraw_stop(work: Work, task: TaskLine, claim: ClaimLine) -> None:
    """The stop order was never sent, and what it was for has come after all."""
    assert not claim.stop_sent, claim
    claim.stop_cause = None
    claim.changed = True
    if claim.open:
        task.phase = Phase.RUNNING if claim.state == OfferState.ADMITTED else Phase.OFFERED
    note(work, task, EventKind.STOP_WITHDRAWN, claim.number)


def record_ending(
    work: Work,
    task: TaskLine,
    claim: ClaimLine,
    ending: Ending,
    *,
    settled_at: datetime,
    started_at: datetime | None = None,
    ended_at: datetime | None = None,
) -> None:
    """The ending that counts, and when the attempt started and ended by its machine's clock.

    `settled_at`: the workflow's instant of this settle. Without `ended_at` it ended now.
    """
    now = instant(work.now)
    placed_at = instant(claim.claimed_at)
    span = shown_span(started_at, ended_at or now, placed_at=placed_at, heard_at=now)
    claim.ending = ending_text(ending)
    claim.settled_at = micros(settled_at)
    claim.ended_at = micros(span.ended_at)
    if span.started_at is not None:
        claim.started_at = micros(span.started_at)
    claim.changed = True
    note(work, task, EventKind.ENDED, claim.number, ending.kind.value, at=claim.ended_at)


def record_late(work: Work, task: TaskLine, claim: ClaimLine, ending: Ending) -> None:
    """News of a closed number: written down, and of no effect on the task."""
    written = ending_text(ending)
    if written in (claim.ending, claim.late_ending):
        return
    claim.late_ending = written
    claim.changed = True
    note(work, task, EventKind.LATE, claim.number, ending.kind.value)


def spend(task: TaskLine, ending: Ending) -> None:
    """Charge an ending to the budget of its cause, as the workflow does."""
    task.spent = read_spent(task.spent).charged(ending.cause).model_dump_json(exclude_defaults=True)
