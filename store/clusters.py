"""The rows of clusters: contact, epochs, grants and silence, as ClusterWorkflow commits them.

The brake's row is locked first wherever reachability changes, so that two clusters which fall
silent at once count each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from domain.protocol import Grant, Heartbeat, Register
from domain.reasons import Reason
from domain.supervision import BrakeTerms, Reach
from store.acts import note_act
from store.bell import ring_if_needed, ring_waiting
from store.brake import DEFAULT_BRAKE, brake_held, lift_brake_if_few, lock_brake, set_brake_if_many
from store.dialects import upsert
from store.digests import inquire
from store.drains import drain_joined, unknown_if_drained
from store.fences import unfence
from store.locking import Work
from store.machines import save_reports, save_states
from store.mapping import micros, place_of
from store.tables import CLAIM, CLUSTER, HELD
from store.transitions import release, vouch
from store.writing import write

CLAIMS_PER_STEP_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Contact:
    """What a heartbeat has done."""

    rings: set[int]
    """Partitions whose bell is to be rung."""
    epoch: int


def register(connection: Connection, cluster: str, message: Register, now: datetime) -> None:
    """An agent process has started. It has no lease, whatever the row said before."""
    _ensure(connection, cluster, micros(now))
    values = {
        "instance": message.instance,
        "http_address": message.http_address,
        "site": message.site,
        "heard_at": micros(now),
        "delivering_since": None,
    }
    connection.execute(update(CLUSTER).where(CLUSTER.c.name == cluster).values(values))


def heartbeat(
    connection: Connection,
    cluster: str,
    message: Heartbeat,
    now: datetime,
    *,
    reachable: bool = False,
    brake: BrakeTerms = DEFAULT_BRAKE,
) -> Contact:
    """Machines, and contact. `reachable`: its lease runs, so a suspicion ends.

    Its digests are compared with the claims; what differs is asked about with the next delivery.
    """
    at = micros(now)
    _ensure(connection, cluster, at)
    # A suspicion that begins between this look and the lock ends with the next heartbeat: the brake
    # may not be locked after the row.
    suspect = reachable and _state(connection, cluster) == Reach.SUSPECT
    if suspect:
        lock_brake(connection)
    row = _lock(connection, cluster)
    values: dict[str, Any] = {"heard_at": at}
    if message.http_address:
        values["http_address"] = message.http_address
    if message.site:
        values["site"] = message.site
    if message.braked != (row.machines_braked_since is not None):
        values["machines_braked_since"] = at if message.braked else None
    back = suspect and row.state == Reach.SUSPECT and row.epoch == message.epoch
    if back:
        values |= {"state": Reach.REACHABLE.value, "silent_since": None}
    connection.execute(update(CLUSTER).where(CLUSTER.c.name == cluster).values(values))
    if back:
        unfence(connection, cluster, Reason.SUPERSEDED)
        lift_brake_if_few(connection, at, brake)
    if reachable:
        inquire(connection, cluster, message.running, now)
    names = {report.name for report in message.machines}
    joining = unknown_if_drained(connection, cluster, names)
    freed = save_reports(connection, cluster, message.machines, now)
    drain_joined(connection, cluster, joining, now)
    freed = save_states(connection, cluster, message.states, now) or freed
    freed = freed or back
    rings = ring_waiting(connection, now) if freed else ring_if_needed(connection, now)
    return Contact(rings=rings, epoch=row.epoch)


def begin_grant(
    connection: Connection, cluster: str, now: datetime, *, brake: BrakeTerms = DEFAULT_BRAKE
) -> Grant:
    """The epoch rises, silence ends, and every closed number that may still be held is listed.

    Open numbers are good again, even those of a fenced cluster that no workflow has closed yet.
    Nothing new is placed there before the agent has answered.
    """
    at = micros(now)
    lock_brake(connection)
    _ensure(connection, cluster, at)
    row = _lock(connection, cluster)
    values = {
        "epoch": row.epoch + 1,
        "state": Reach.SUSPECT.value,
        "silent_since": None,
        "delivering_since": None,
        "confirmed_by": "",
    }
    connection.execute(update(CLUSTER).where(CLUSTER.c.name == cluster).values(values))
    lift_brake_if_few(connection, at, brake)
    unfence(connection, cluster, *Reason)
    held = _lock_held(connection, cluster)
    # A stop order that was taken under an older epoch is given again: the tombstone is gone by now.
    again = [claim.attempt for claim in held if claim.stop_cause is not None]
    if again:
        redo = update(CLAIM).where(CLAIM.c.attempt.in_(again))
        connection.execute(redo.values(stop_epoch=None, to_deliver=1))
    closed = tuple(claim.attempt for claim in held if claim.standing != "open")
    return Grant(cluster=cluster, epoch=row.epoch + 1, closed=closed)


def grant_answered(
    connection: Connection, cluster: str, epoch: int, ended: Sequence[str], now: datetime
) -> set[int]:
    """The agent has its lease: the cluster is reachable, and these closed attempts have ended.

    Nothing when the epoch is over. The answer: partitions to be rung.
    """
    at = micros(now)
    row = _lock(connection, cluster)
    if row is None or row.epoch != epoch or row.state not in (Reach.SUSPECT, Reach.REACHABLE):
        return set()
    values = {"state": Reach.REACHABLE.value, "silent_since": None, "heard_at": at}
    connection.execute(update(CLUSTER).where(CLUSTER.c.name == cluster).values(values))
    work = Work(connection, at)
    work.room_freed = True
    work.lock_claims(ended)
    for claim in work.claims.values():
        if claim.cluster == cluster and not claim.open:
            release(work, claim)
    return write(work)


def mark_suspect(
    connection: Connection,
    cluster: str,
    epoch: int,
    now: datetime,
    *,
    brake: BrakeTerms = DEFAULT_BRAKE,
) -> bool:
    """Silent for too long; the brake may be set in the same transaction. False: epoch over."""
    at = micros(now)
    lock_brake(connection)
    row = _lock(connection, cluster)
    if row is None or row.epoch != epoch:
        return False
    if row.state == Reach.REACHABLE or (row.state == Reach.SUSPECT and row.silent_since is None):
        _silence(connection, cluster, Reach.SUSPECT, at, brake)
    return True


def fence(
    connection: Connection,
    cluster: str,
    epoch: int,
    now: datetime,
    *,
    brake: BrakeTerms = DEFAULT_BRAKE,
) -> bool:
    """Its deadline has certainly passed. False under the brake, or when the epoch is over."""
    at = micros(now)
    lock_brake(connection)
    row = _lock(connection, cluster)
    if row is None or row.epoch != epoch or row.state not in (Reach.SUSPECT, Reach.FENCED):
        return False
    if row.state == Reach.FENCED:
        return True
    if row.silent_since is None:  # Granted, but never heard of again: its silence counts from here.
        _silence(connection, cluster, Reach.SUSPECT, at, brake)
    if brake_held(connection):
        return False
    mine = CLUSTER.c.name == cluster
    connection.execute(update(CLUSTER).where(mine).values(state=Reach.FENCED.value))
    return True


def confirm_lost(
    connection: Connection,
    cluster: str,
    machine: str | None,
    by: str,
    now: datetime,
    *,
    said_at: datetime | None = None,
    brake: BrakeTerms = DEFAULT_BRAKE,
) -> set[int]:
    """Somebody vouches that nothing there runs any more: its remnants hold no room from here on.

    Open numbers are marked: their workflows are told by the loss pages, the waiting ones included.
    """
    at = micros(now)
    lock_brake(connection)
    row = _lock(connection, cluster)
    if row is None:
        return set()
    if machine is None:
        values = {"state": Reach.CONFIRMED.value, "silent_since": None, "confirmed_by": by}
        connection.execute(update(CLUSTER).where(CLUSTER.c.name == cluster).values(values))
        lift_brake_if_few(connection, at, brake)
    subject = cluster if machine is None else place_of(cluster, machine)
    note_act(connection, by, "confirm-lost", subject, said_at or now)
    place = None if machine is None else place_of(cluster, machine)
    held = [c for c in _lock_held(connection, cluster) if place is None or c.place == place]
    reason = Reason.CLUSTER_LOST if machine is None else Reason.MACHINE_LOST
    rings: set[int] = set()
    for first in range(0, len(held), CLAIMS_PER_STEP_MAX):
        work = Work(connection, at)
        work.lock_claims([c.attempt for c in held[first : first + CLAIMS_PER_STEP_MAX]])
        for claim in work.claims.values():
            vouch(work, claim, reason)
        rings |= write(work)
    return rings


def _ensure(connection: Connection, cluster: str, now: int) -> None:
    fresh = upsert(connection, CLUSTER)
    row = {"name": cluster, "state": Reach.ABSENT.value, "registered_at": now, "heard_at": now}
    connection.execute(fresh.values(row))


def _state(connection: Connection, cluster: str) -> Any:
    return connection.scalar(select(CLUSTER.c.state).where(CLUSTER.c.name == cluster))


def _lock(connection: Connection, cluster: str) -> Any:
    mine = select(CLUSTER).where(CLUSTER.c.name == cluster).with_for_update(key_share=True)
    return connection.execute(mine).one_or_none()


def _lock_held(connection: Connection, cluster: str) -> Sequence[Any]:
    held = (
        select(CLAIM.c.attempt, CLAIM.c.place, CLAIM.c.standing, CLAIM.c.stop_cause)
        .where(CLAIM.c.cluster == cluster)
        .where(HELD)
        .order_by(CLAIM.c.attempt)
        .with_for_update(key_share=True)
    )
    return connection.execute(held).all()


def _silence(
    connection: Connection, cluster: str, state: Reach, now: int, brake: BrakeTerms
) -> None:
    values = {"state": state.value, "silent_since": now, "delivering_since": None}
    connection.execute(update(CLUSTER).where(CLUSTER.c.name == cluster).values(values))
    set_brake_if_many(connection, now, brake)
