"""The ledger as cluster supervision sees it: each question is one transaction of `store`.

Decides nothing: `domain.cluster` asked, the rows answer. Rings and hints follow the commit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection
from temporalio import activity

from activities.cluster_row import cluster_or_none
from activities.losses import Losses
from activities.notices import Notices
from activities.writer import LedgerWriter
from domain.protocol import ORDERS_PER_DELIVERY_MAX, Delivery
from domain.supervision import (
    BeginGrant,
    BrakeSeen,
    ClusterAnswer,
    ClusterOperation,
    Fence,
    FenceAnswer,
    GrantBegun,
    LeaseTerms,
    LoadOrders,
    LookAtBrake,
    LossPaged,
    MarkSuspect,
    NoteAnswers,
    NoteConfirmed,
    NoteCordon,
    Noted,
    NoteGranted,
    NoteHeartbeat,
    NoteOrphan,
    NoteRegistration,
    Open,
    Opened,
    OrdersLoaded,
    PageLoss,
)
from store import clusters as rows
from store.brake import brake_held
from store.losses import orphan
from store.machines import cordon
from store.orders import apply_answers, orders, stop_unanswered_offers, undelivered
from workflows.ports import ClusterPort


@dataclass(frozen=True, slots=True)
class Done:
    """The answer, and the partitions to ring once it is committed."""

    answer: ClusterAnswer
    rings: frozenset[int] = frozenset()


class Clusters(ClusterPort):
    """Writes through the process's one writer."""

    def __init__(
        self,
        terms: LeaseTerms,
        offer_deadline_s: float,
        writer: LedgerWriter,
        notices: Notices,
        losses: Losses,
    ) -> None:
        self._terms = terms
        self._offer_deadline_s = offer_deadline_s
        self._writer = writer
        self._notices = notices
        self._losses = losses

    @activity.defn
    async def cluster_ledger(self, operation: ClusterOperation) -> ClusterAnswer:
        """Carry out one operation."""
        work = self._work(operation)
        done = await self._writer.run(lambda connection: work(connection, datetime.now(UTC)))
        self._notices.ring(done.rings)
        return done.answer

    @activity.defn
    async def page_loss(self, ask: PageLoss) -> LossPaged:
        """Close what the row says is lost, and tell its tasks until all have settled."""
        return await self._losses.page(ask.cluster)

    def _work(self, operation: ClusterOperation) -> Callable[[Connection, datetime], Done]:
        match operation:
            case Open():
                return lambda c, _now: Done(self._open(c, operation))
            case LoadOrders():
                return lambda c, now: Done(self._load(c, operation, now))
            case NoteHeartbeat() | NoteRegistration() | BeginGrant() | NoteGranted():
                return lambda c, now: _contact(c, operation, now)
            case MarkSuspect() | LookAtBrake() | Fence():
                return lambda c, now: Done(_silence(c, operation, now))
            case NoteAnswers() | NoteOrphan() | NoteConfirmed() | NoteCordon():
                return lambda c, now: _note(c, operation, now)

    def _open(self, connection: Connection, ask: Open) -> Opened:
        row = cluster_or_none(connection, ask.cluster)
        if row is None:
            return Opened(terms=self._terms)
        return Opened(terms=self._terms, reach=row.state, epoch=row.epoch, instance=row.instance)

    def _load(self, connection: Connection, ask: LoadOrders, now: datetime) -> OrdersLoaded:
        stop_unanswered_offers(
            connection,
            ask.cluster,
            now,
            self._offer_deadline_s,
            deliveries_succeed=ask.deliveries_succeed,
        )
        epoch, asked = orders(connection, ask.cluster, ORDERS_PER_DELIVERY_MAX)
        if not asked:
            return OrdersLoaded(delivery=None)
        delivery = Delivery(cluster=ask.cluster, epoch=epoch, orders=tuple(asked))
        return OrdersLoaded(delivery=delivery, full=len(asked) >= ORDERS_PER_DELIVERY_MAX)


def _contact(
    connection: Connection,
    operation: NoteHeartbeat | NoteRegistration | BeginGrant | NoteGranted,
    now: datetime,
) -> Done:
    name = operation.cluster
    match operation:
        case NoteHeartbeat(heartbeat=heartbeat, reachable=reachable):
            contact = rows.heartbeat(connection, name, heartbeat, now, reachable=reachable)
            noted = Noted(undelivered=undelivered(connection, name))
            return Done(noted, frozenset(contact.rings))
        case NoteRegistration(register_=register):
            rows.register(connection, name, register, now)
            return Done(Noted())
        case BeginGrant():
            return Done(GrantBegun(grant=rows.begin_grant(connection, name, now)))
        case NoteGranted(answer=answer):
            rings = rows.grant_answered(connection, name, answer.epoch, answer.ended, now)
            return Done(Noted(), frozenset(rings))


def _silence(
    connection: Connection, operation: MarkSuspect | LookAtBrake | Fence, now: datetime
) -> ClusterAnswer:
    match operation:
        case MarkSuspect(cluster=name, epoch=epoch):
            rows.mark_suspect(connection, name, epoch, now)
            return Noted()
        case LookAtBrake():
            return BrakeSeen(braked=brake_held(connection))
        case Fence(cluster=name, epoch=epoch):
            return FenceAnswer(fenced=rows.fence(connection, name, epoch, now))


def _note(
    connection: Connection,
    operation: NoteAnswers | NoteOrphan | NoteConfirmed | NoteCordon,
    now: datetime,
) -> Done:
    name = operation.cluster
    match operation:
        case NoteAnswers(answer=answer):
            # What is still unanswered waits for the next hint or heartbeat: no answer, no hurry.
            apply_answers(connection, name, answer.epoch, answer.answers, now)
            return Done(Noted())
        case NoteOrphan(orphan=message):
            return Done(Noted(), frozenset(orphan(connection, name, message, now)))
        case NoteConfirmed(confirmed=word):
            rings = rows.confirm_lost(connection, name, word.machine, word.by, now)
            return Done(Noted(), frozenset(rings))
        case NoteCordon(cordon=wish):
            rings = cordon(
                connection,
                name,
                wish.machines,
                cordoned=wish.cordoned,
                by=wish.by,
                now=now,
            )
            return Done(Noted(), frozenset(rings))
