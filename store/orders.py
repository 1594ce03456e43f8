"""What a cluster's agent must be told, and what it has answered.

An order goes with every delivery until it is answered, under whatever epoch holds by then; the
agent drops the doubles by their number.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, select, update

from domain.attempt import Phase, StopCause
from domain.ids import attempt_id
from domain.protocol import (
    DELIVERY_BYTES_MAX,
    ORDERS_PER_DELIVERY_MAX,
    Inquiry,
    Offer,
    Order,
    OrderAnswer,
    StopOrder,
)
from domain.views import EventKind
from store.lines import ClaimLine, OfferState, TaskLine
from store.locking import Work
from store.mapping import micros, read_spec, split_place
from store.prepared import KEYS, Prepared, one_of
from store.tables import CLAIM, CLUSTER, SPEC, TO_DELIVER
from store.transitions import note, order_stop, withdraw_stop
from store.writing import write

STOPS_PER_TRANSACTION_MAX = 1_000
_ORDER_BYTES = 500
"""A generous guess at an order without its specification."""

_MINE = CLAIM.c.cluster == bindparam("cluster")
_UNANSWERED = Prepared(
    select(
        *(CLAIM.c.attempt, CLAIM.c.key, CLAIM.c.number, CLAIM.c.place, CLAIM.c.state),
        *(CLAIM.c.stop_cause, CLAIM.c.stop_epoch, CLAIM.c.stop_sent, CLAIM.c.inquiry),
        CLAIM.c.grace_s,
        case((CLAIM.c.state == OfferState.OFFERED.value, SPEC.c.body), else_=None).label("body"),
    )
    .join(SPEC, SPEC.c.key == CLAIM.c.key)
    .where(_MINE)
    .where(TO_DELIVER)
    # Stops first: they free room, and a queue of offers must not hold them back.
    .order_by(CLAIM.c.stop_cause.is_(None), CLAIM.c.claimed_at, CLAIM.c.attempt)
    .limit(bindparam("limit"))
)
_SOME = one_of(CLAIM.c.attempt)
_LOCK_SENT = Prepared(
    select(CLAIM.c.attempt).where(_SOME).order_by(CLAIM.c.attempt).with_for_update(key_share=True)
)
_STOPS_SENT = Prepared(update(CLAIM).where(_SOME).values(stop_sent=1))
_LEFT_OUT = Prepared(
    update(CLAIM)
    .where(_SOME)
    .where(CLAIM.c.unanswered_since.is_(None))
    .values(unanswered_since=bindparam("b_at"))
)
# The cluster's row comes first: it keeps whoever else changes this cluster's claims apart.
_LOCK_CLUSTER = Prepared(
    select(CLUSTER.c.epoch, CLUSTER.c.delivering_since)
    .where(CLUSTER.c.name == bindparam("cluster"))
    .with_for_update(key_share=True)
)
_ANY = Prepared(select(CLAIM.c.attempt).where(_MINE).where(TO_DELIVER).limit(1))
_LATE_OFFERS = Prepared(
    select(CLAIM.c.attempt, CLAIM.c.key)
    .where(_MINE)
    .where(TO_DELIVER)
    .where(CLAIM.c.state == OfferState.OFFERED.value)
    .where(CLAIM.c.stop_cause.is_(None))
    .where(CLAIM.c.unanswered_since <= bindparam("before"))
    .limit(STOPS_PER_TRANSACTION_MAX)
)
_DELIVERED = Prepared(
    update(CLUSTER)
    .where(CLUSTER.c.name == bindparam("b_cluster"))
    .where(CLUSTER.c.epoch == bindparam("b_epoch"))
    .values(
        delivering_since=func.coalesce(CLUSTER.c.delivering_since, bindparam("b_now")),
        delivered_at=bindparam("b_now"),
    )
)


def orders(
    connection: Connection, cluster: str, limit: int = ORDERS_PER_DELIVERY_MAX
) -> tuple[int, list[Order]]:
    """The epoch, and the orders without an answer, as many as one delivery can hold.

    A stop order counts as sent from here on: nothing takes it back any more.
    """
    epoch = _LOCK_CLUSTER.scalar(connection, {"cluster": cluster})
    rows = _UNANSWERED.rows(connection, {"cluster": cluster, "limit": limit})
    asked: list[Order] = []
    stops: list[str] = []
    size = 0
    for row in rows:
        order = _order(row)
        body_bytes = len(row.body) if isinstance(order, Offer) else 0
        size += _ORDER_BYTES + body_bytes
        if size > DELIVERY_BYTES_MAX:
            break
        asked.append(order)
        if isinstance(order, StopOrder) and not row.stop_sent:
            stops.append(row.attempt)
    if stops:
        _LOCK_SENT.rows(connection, {KEYS: sorted(stops)})
        _STOPS_SENT.run(connection, {KEYS: stops})
    return int(epoch or 0), asked


def undelivered(connection: Connection, cluster: str) -> bool:
    """True while an order waits for this cluster's agent."""
    return _ANY.scalar(connection, {"cluster": cluster}) is not None


def apply_answers(
    connection: Connection,
    cluster: str,
    epoch: int,
    answers: Sequence[OrderAnswer],
    now: datetime,
    *,
    left_out: Sequence[str] = (),
) -> int:
    """Write down what the agent has said under this epoch; how many answers changed something.

    Answers of an older epoch say nothing: what they were about is delivered again.
    """
    if not _note_delivery(connection, cluster, epoch, micros(now)):
        return 0
    work = Work(connection, micros(now))
    said = [answer for answer in answers if answer.answer != "stale"]
    attempts = {attempt_id(answer.key, answer.number) for answer in said}
    work.lock_tasks({answer.key for answer in said})
    work.lock_claims({*attempts, *left_out})
    if left_out:
        _LEFT_OUT.run(connection, {KEYS: sorted(left_out), "b_at": micros(now)})
    changed = 0
    for answer in said:
        claim = work.claims.get(attempt_id(answer.key, answer.number))
        if claim is None or claim.cluster != cluster or not claim.held:
            continue
        if _answered(work, work.tasks[claim.key], claim, answer, epoch):
            changed += 1
            claim.changed = True
    write(work)
    return changed


def stop_unanswered_offers(
    connection: Connection,
    cluster: str,
    now: datetime,
    deadline_s: float,
    *,
    deliveries_succeed: bool = True,
) -> int:
    """Offers without an answer for too long, while deliveries succeeded, become stop orders.

    The time counts from a delivery that held the offer and whose answer did not: what only waits
    for its turn behind many others has not been asked yet.
    """
    mine = CLUSTER.c.name == cluster
    if not deliveries_succeed:
        connection.execute(update(CLUSTER).where(mine).values(delivering_since=None))
        return 0
    rows = _LOCK_CLUSTER.rows(connection, {"cluster": cluster})
    before = micros(now) - round(deadline_s * 1_000_000)
    since = rows[0].delivering_since if rows else None
    if since is None or since > before:
        return 0
    late = _LATE_OFFERS.rows(connection, {"cluster": cluster, "before": before})
    return _stop_all(connection, late, StopCause.OFFER_UNANSWERED, now, unanswered=True)


def request_stop(connection: Connection, key: str, cause: StopCause, now: datetime) -> str | None:
    """Order the open attempt of this task to stop; the cluster to hint at, or None for no effect.

    For preemption and drains; a user's cancel is a `Withdraw`.
    """
    work = Work(connection, micros(now))
    work.lock_current([key])
    task = work.tasks.get(key)
    if task is None or not task.claimed:
        return None
    claim = work.claim_of(task)
    ordered = order_stop(work, task, claim, cause)
    write(work)
    return claim.cluster if ordered else None


def _order(row: Any) -> Order:
    key, number, machine = row.key, row.number, split_place(row.place)[1]
    if row.stop_cause is not None and row.stop_epoch is None:
        cause = StopCause(row.stop_cause)
        return StopOrder(key=key, number=number, machine=machine, cause=cause, grace_s=row.grace_s)
    if row.inquiry and (row.state != OfferState.OFFERED or row.stop_cause is not None):
        return Inquiry(key=key, number=number, machine=machine)
    assert row.body is not None, row
    return Offer(key=key, number=number, machine=machine, spec=read_spec(row.body))


def _note_delivery(connection: Connection, cluster: str, epoch: int, now: int) -> bool:
    """A delivery has succeeded; False when its epoch is over."""
    given = {"b_cluster": cluster, "b_epoch": epoch, "b_now": now}
    return _DELIVERED.run(connection, given) == 1


def _answered(
    work: Work, task: TaskLine, claim: ClaimLine, answer: OrderAnswer, epoch: int
) -> bool:
    before = (claim.state, claim.stop_epoch, claim.stop_cause, claim.inquiry)
    match answer.order, answer.answer:
        case "offer", "admitted" if claim.state != OfferState.ADMITTED:
            _admit(work, task, claim)
        case "offer", "refused" if claim.state == OfferState.OFFERED:
            claim.state = OfferState.REFUSED
            note(work, task, EventKind.REFUSED, claim.number, answer.reason or "")
        case "stop", "taken" if claim.stop_cause is not None and claim.stop_sent:
            claim.stop_epoch = epoch
        case "inquiry", "taken":
            claim.inquiry = 0
    claim.to_deliver = int(has_order(claim))
    return before != (claim.state, claim.stop_epoch, claim.stop_cause, claim.inquiry)


def _admit(work: Work, task: TaskLine, claim: ClaimLine) -> None:
    claim.state = OfferState.ADMITTED
    claim.admitted_at = work.now
    note(work, task, EventKind.ADMITTED, claim.number)
    if claim.stop_cause == StopCause.OFFER_UNANSWERED and not claim.stop_sent:
        withdraw_stop(work, task, claim)
    elif claim.open and claim.stop_cause is None:
        task.phase = Phase.RUNNING


def has_order(claim: ClaimLine) -> bool:
    """True while its agent is to be told something about it."""
    if claim.stop_cause is not None and claim.stop_epoch is None:
        return True
    offered = claim.state == OfferState.OFFERED and claim.stop_cause is None
    return offered or bool(claim.inquiry)


def _stop_all(
    connection: Connection,
    rows: Iterable[Any],
    cause: StopCause,
    now: datetime,
    *,
    unanswered: bool,
) -> int:
    work = Work(connection, micros(now))
    attempts = {row.attempt: row.key for row in rows}
    work.lock_tasks(set(attempts.values()))
    work.lock_claims(attempts)
    stopped = 0
    for attempt in sorted(attempts):
        claim = work.claims[attempt]
        if unanswered and claim.state != OfferState.OFFERED:
            continue
        stopped += order_stop(work, work.tasks[claim.key], claim, cause)
    write(work)
    return stopped
