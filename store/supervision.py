"""Answers the questions of `domain.supervision` from the ledger, in the caller's transaction."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from domain.protocol import ORDERS_PER_DELIVERY_MAX, Delivery, LiftBrake
from domain.supervision import (
    BeginGrant,
    BrakeSeen,
    BrakeTerms,
    ClusterAnswer,
    ClusterOperation,
    Fence,
    FenceAnswer,
    GrantBegun,
    LeaseTerms,
    LoadOrders,
    LookAtBrake,
    MarkSuspect,
    NoteAnswers,
    NoteConfirmed,
    NoteCordon,
    Noted,
    NoteDrain,
    NoteGranted,
    NoteHeartbeat,
    NoteLift,
    NoteOrphan,
    NoteRegistration,
    Open,
    Opened,
    OrdersLoaded,
    Reach,
)
from store.acts import note_act
from store.brake import DEFAULT_BRAKE, brake_held, lift_brake
from store.clusters import (
    begin_grant,
    confirm_lost,
    fence,
    grant_answered,
    heartbeat,
    mark_suspect,
    register,
)
from store.drains import drains_due, set_drain, stop_drained
from store.losses import orphan
from store.machines import cordon
from store.orders import apply_answers, orders, stop_unanswered_offers, undelivered
from store.tables import CLUSTER


@dataclass(frozen=True, slots=True)
class Supervised:
    """The answer, and the partitions whose bell is to be rung after the commit."""

    answer: ClusterAnswer
    rings: set[int]


def supervise(
    connection: Connection,
    operation: ClusterOperation,
    *,
    now: datetime,
    terms: LeaseTerms,
    offer_deadline_s: float = 15,
    brake: BrakeTerms = DEFAULT_BRAKE,
) -> Supervised:
    """Carry out one operation of a ClusterWorkflow; each may be repeated."""
    cluster = operation.cluster
    rings: set[int] = set()
    match operation:
        case Open():
            return Supervised(_opened(connection, cluster, terms), rings)
        case BeginGrant():
            return Supervised(
                GrantBegun(grant=begin_grant(connection, cluster, now, brake=brake)), rings
            )
        case LoadOrders(deliveries_succeed=succeed):
            stop_drained(connection, cluster, now)
            stop_unanswered_offers(
                connection, cluster, now, offer_deadline_s, deliveries_succeed=succeed
            )
            return Supervised(_loaded(connection, cluster), rings)
        case LookAtBrake():
            return Supervised(BrakeSeen(braked=brake_held(connection)), rings)
        case Fence(epoch=epoch):
            fenced = fence(connection, cluster, epoch, now, brake=brake)
            return Supervised(FenceAnswer(fenced=fenced), rings)
        case NoteRegistration(register_=message):
            register(connection, cluster, message, now)
        case NoteHeartbeat(heartbeat=beat, reachable=reachable):
            rings = heartbeat(
                connection, cluster, beat, now, reachable=reachable, brake=brake
            ).rings
        case NoteGranted(answer=granted):
            rings = grant_answered(connection, cluster, granted.epoch, granted.ended, now)
        case NoteAnswers(answer=said, left_out=missing):
            apply_answers(connection, cluster, said.epoch, said.answers, now, left_out=missing)
        case MarkSuspect(epoch=epoch):
            mark_suspect(connection, cluster, epoch, now, brake=brake)
        case NoteOrphan(orphan=message):
            rings = orphan(connection, cluster, message, now)
        case NoteConfirmed(confirmed=lost):
            by, at = lost.by, lost.at
            rings = confirm_lost(
                connection, cluster, lost.machine, by, now, said_at=at, brake=brake
            )
        case NoteCordon(cordon=wish):
            rings = cordon(
                connection, cluster, wish.machines, cordoned=wish.cordoned, by=wish.by, now=now
            )
        case NoteDrain(drain=drain):
            rings = set_drain(connection, cluster, drain, now)
        case NoteLift(lift=LiftBrake(brake="clusters", by=by)):
            lift_brake(connection, now, by)
        case NoteLift(lift=LiftBrake(by=by, at=at)):
            note_act(connection, by, "lift-brake", f"machines of {cluster}", at)
    return Supervised(_noted(connection, cluster, now), rings)


def _noted(connection: Connection, cluster: str, now: datetime) -> Noted:
    """What is drained is looked at when orders are loaded, so that counts as one."""
    epoch = connection.scalar(select(CLUSTER.c.epoch).where(CLUSTER.c.name == cluster)) or 0
    waits = undelivered(connection, cluster) or drains_due(connection, cluster, now)
    return Noted(undelivered=waits, epoch=epoch)


def _opened(connection: Connection, cluster: str, terms: LeaseTerms) -> Opened:
    row = connection.execute(select(CLUSTER).where(CLUSTER.c.name == cluster)).one_or_none()
    if row is None:
        return Opened(terms=terms)
    return Opened(terms=terms, reach=Reach(row.state), epoch=row.epoch, instance=row.instance)


def _loaded(connection: Connection, cluster: str) -> OrdersLoaded:
    epoch, asked = orders(connection, cluster)
    if not asked:
        return OrdersLoaded(delivery=None)
    delivery = Delivery(cluster=cluster, epoch=epoch, orders=tuple(asked))
    return OrdersLoaded(delivery=delivery, full=len(asked) == ORDERS_PER_DELIVERY_MAX)
