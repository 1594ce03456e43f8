"""The brake: nothing is replaced while a large part of all clusters is silent."""

from datetime import datetime

from sqlalchemy import Connection, func, select, update

from domain.supervision import BrakeTerms, Reach
from domain.views import BrakeView
from store.acts import note_act
from store.dialects import upsert
from store.mapping import instant, instant_or_none, micros
from store.tables import BRAKE, CLUSTER

DEFAULT_BRAKE = BrakeTerms()
_COUNTED = (Reach.REACHABLE.value, Reach.SUSPECT.value, Reach.FENCED.value)
"""Clusters without a first grant, and those confirmed lost, are no part of the share."""


def brake(connection: Connection) -> BrakeView:
    """Whether it holds, and since when; and where agents hold theirs."""
    row = connection.execute(select(BRAKE)).one_or_none()
    silent, counted = silent_clusters(connection)
    braked = CLUSTER.c.machines_braked_since
    # Of a silent one the last word may be old: there the brake on clusters decides.
    heard = CLUSTER.c.state == Reach.REACHABLE.value
    agents = select(CLUSTER.c.name, braked).where(braked.is_not(None)).where(heard)
    rows = connection.execute(agents.order_by(CLUSTER.c.name))
    return BrakeView(
        held=row is not None and bool(row.held),
        since=None if row is None else instant_or_none(row.since),
        by="" if row is None else row.by,
        silent=silent,
        counted=counted,
        machines={name: instant(since) for name, since in rows},
    )


def brake_held(connection: Connection) -> bool:
    """Read by whoever is about to replace; it cannot be set before they have committed."""
    return bool(connection.scalar(select(BRAKE.c.held).with_for_update(read=True)))


def lock_brake(connection: Connection) -> None:
    """The first lock of every transaction that changes what the brake depends on."""
    connection.execute(upsert(connection, BRAKE), {"id": 1})
    connection.execute(select(BRAKE.c.id).with_for_update())


def set_brake_if_many(connection: Connection, now: int, terms: BrakeTerms = DEFAULT_BRAKE) -> bool:
    """A cluster has just fallen silent; call with the brake locked. True when the brake holds."""
    if _held(connection):
        return True
    silent, counted = silent_clusters(connection)
    many = silent >= terms.clusters and silent * 100 > terms.percent * counted
    if many:
        connection.execute(update(BRAKE).values(held=1, since=now, by=""))
    return many


def lift_brake_if_few(connection: Connection, now: int, terms: BrakeTerms = DEFAULT_BRAKE) -> None:
    """A cluster has just come back or is known to be lost; call with the brake locked."""
    silent, counted = silent_clusters(connection)
    if silent * 100 <= terms.percent * counted and _held(connection):
        _release(connection, now, by="")


def lift_brake(connection: Connection, now: datetime, by: str) -> bool:
    """An operator's word; False when it did not hold."""
    lock_brake(connection)
    if not _held(connection):
        return False
    # It is set again only by the next cluster that falls silent, not by those that are now.
    _release(connection, micros(now), by=by)
    note_act(connection, by, "lift-brake", "clusters", now)
    return True


def _release(connection: Connection, now: int, *, by: str) -> None:
    """Every suspect cluster's wait starts anew, so readers see: no other cluster is locked here."""
    connection.execute(update(BRAKE).values(held=0, since=now, by=by))


def _held(connection: Connection) -> bool:
    return bool(connection.scalar(select(BRAKE.c.held)))


def silent_clusters(connection: Connection) -> tuple[int, int]:
    """How many are silent, and of how many."""
    counted = select(func.count(), func.count(CLUSTER.c.silent_since)).where(
        CLUSTER.c.state.in_(_COUNTED)
    )
    total, silent = connection.execute(counted).one()
    return int(silent), int(total)
