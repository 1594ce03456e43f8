"""Claims held against the lists of agents: who is asked, what differs, and how that is healed.

A list is older than the snapshot that it is compared with, so one look proves nothing: an attempt
may have begun or ended between. What two lists show, with a look at the claims between them, is so.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from domain.attempt import StopCause
from domain.audit import (
    CLUSTERS_PER_AUDIT_MAX,
    MACHINES_PER_ROLL_MAX,
    Fault,
    RollAnswer,
    RollCall,
)
from domain.ids import attempt_id, split_attempt_id
from domain.protocol import StopOrder
from domain.supervision import Reach
from store.audit import Difference
from store.differences import Seen, conclude, note_seen, open_subjects
from store.digests import DOUBT_AFTER_S, machine_agrees
from store.lines import OfferState, Standing, TaskLine
from store.locking import Work
from store.mapping import micros, place_of, split_place
from store.mending import (
    AGREES,
    Mended,
    Mending,
    adopt,
    ask_agent,
    end_closed,
    noted,
    reopen,
)
from store.tables import CLAIM, CLUSTER, DOUBTFUL_MACHINE, HELD

AGENT_FAULTS = (Fault.CLAIM_NOT_RUNNING, Fault.RUNS_WITHOUT_CLAIM)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`again`: machines whose lists are wanted once more. The rest is for after the commit."""

    again: tuple[str, ...] = ()
    stops: tuple[StopOrder, ...] = ()
    """Of closed numbers that have no claim which could carry the order."""
    unknown: tuple[StopOrder, ...] = ()
    """Of tasks that the ledger does not know: to be sent where no workflow knows them either."""
    rings: frozenset[int] = frozenset()
    clusters: frozenset[str] = frozenset()


def roll_calls(connection: Connection) -> tuple[RollCall, ...]:
    """Whose lists are wanted: of each reachable cluster the machines doubted longest."""
    reachable = (
        select(CLUSTER.c.name)
        .where(CLUSTER.c.state == Reach.REACHABLE.value)
        .where(CLUSTER.c.name.in_(select(DOUBTFUL_MACHINE.c.cluster)))
        .order_by(CLUSTER.c.name)
        .limit(CLUSTERS_PER_AUDIT_MAX)
    )
    calls = []
    for cluster in list(connection.scalars(reachable)):
        doubted = (
            select(DOUBTFUL_MACHINE.c.place)
            .where(DOUBTFUL_MACHINE.c.cluster == cluster)
            .order_by(DOUBTFUL_MACHINE.c.since, DOUBTFUL_MACHINE.c.place)
            .limit(MACHINES_PER_ROLL_MAX)
        )
        names = tuple(split_place(place)[1] for place in connection.scalars(doubted))
        calls.append(RollCall(cluster=cluster, machines=names))
    return tuple(calls)


def compare(
    connection: Connection,
    run: int,
    cluster: str,
    answer: RollAnswer,
    now: datetime,
    *,
    again: bool,
) -> Comparison:
    """What differs between these lists and the claims; the second time it is healed as well."""
    row = connection.execute(select(CLUSTER).where(CLUSTER.c.name == cluster)).one_or_none()
    if row is None or row.state != Reach.REACHABLE or row.epoch != answer.epoch:
        # Its claims may all have been replaced meanwhile: a grant is under way.
        return Comparison()
    seen: list[Seen] = []
    for roll in answer.rolls:
        place = place_of(cluster, roll.machine)
        found = _differences(connection, place, roll.attempts, now)
        if not found:
            machine_agrees(connection, place)
        seen += [Seen(difference, place) for difference in found]
    places = [place_of(cluster, roll.machine) for roll in answer.rolls]
    _gone(connection, places, seen, now)
    if not again:
        note_seen(connection, run, seen, now)
        return Comparison(again=tuple(sorted({split_place(one.place)[1] for one in seen})))
    before = {(r.fault, r.subject): r for r in open_subjects(connection, AGENT_FAULTS, places)}
    twice = [one for one in seen if (one.difference.fault, one.difference.subject) in before]
    note_seen(connection, run, seen, now)
    return _heal(connection, twice, before, now)


def agents_agree(connection: Connection, run: int, now: datetime) -> None:
    """Differences of machines whose agents count by now what the claims say have gone."""
    doubted = set(connection.scalars(select(DOUBTFUL_MACHINE.c.place)))
    for row in open_subjects(connection, AGENT_FAULTS):
        if row.run < run and row.place not in doubted:
            conclude(connection, Fault(row.fault), row.subject, AGREES, now)


# --- what differs -------------------------------------------------------------------------------


def _differences(
    connection: Connection, place: str, listed: Sequence[str], now: datetime
) -> list[Difference]:
    columns = (CLAIM.c.attempt, CLAIM.c.state, CLAIM.c.vouched, CLAIM.c.to_deliver)
    mine = select(*columns, CLAIM.c.claimed_at).where(CLAIM.c.place == place).where(HELD)
    held = {row.attempt: row for row in connection.execute(mine)}
    before = micros(now) - DOUBT_AFTER_S * 1_000_000
    extra = [
        Difference(Fault.RUNS_WITHOUT_CLAIM, attempt, "a claim", f"runs on {place}")
        for attempt in sorted(set(listed) - set(held))
    ]
    missing = [
        Difference(Fault.CLAIM_NOT_RUNNING, attempt, f"runs on {place}", "not listed")
        for attempt, row in sorted(held.items())
        if attempt not in listed and _should_run(row, before)
    ]
    return extra + missing


def _should_run(row: Any, before: int) -> bool:
    said = row.state == OfferState.ADMITTED and not row.to_deliver
    return bool(said and not row.vouched and row.claimed_at < before)


def _gone(
    connection: Connection, places: Collection[str], seen: Sequence[Seen], now: datetime
) -> None:
    """What these lists do not show any more."""
    shown = {(one.difference.fault, one.difference.subject) for one in seen}
    for row in open_subjects(connection, AGENT_FAULTS, places):
        if (row.fault, row.subject) not in shown:
            conclude(connection, Fault(row.fault), row.subject, AGREES, now)


# --- how it is healed ---------------------------------------------------------------------------


def _heal(
    connection: Connection,
    twice: Sequence[Seen],
    before: Mapping[tuple[str, str], Any],
    now: datetime,
) -> Comparison:
    unknown: list[StopOrder] = []
    stops: list[StopOrder] = []
    rings: set[int] = set()
    clusters: set[str] = set()
    ripe = micros(now) - DOUBT_AFTER_S * 1_000_000
    for one in twice:
        fault, attempt = one.difference.fault, one.difference.subject
        if fault is Fault.RUNS_WITHOUT_CLAIM:
            mending = claim_again(connection, attempt, one.place, now)
            order = stop_of(attempt, one.place)
            unknown += [order] if mending is UNKNOWN else []
            stops += [order] if mending is STOPPED else []
        elif before[fault, attempt].first_seen > ripe:
            continue  # Its report may take that long where much is under way.
        else:
            mending = ask_agent(connection, attempt, now)
        conclude(connection, fault, attempt, mending, now)
        rings |= mending.rings
        clusters |= mending.clusters
    return Comparison(
        stops=tuple(stops),
        unknown=tuple(unknown),
        rings=frozenset(rings),
        clusters=frozenset(clusters),
    )


UNKNOWN = Mending(Mended.ASKED, "the ledger does not know the task: its workflow is told")
STOPPED = Mending(Mended.ASKED, "its number is closed and never had a claim there: told to stop")


def claim_again(connection: Connection, attempt: str, place: str, now: datetime) -> Mending:
    """An attempt that runs, and for which nobody holds a claim.

    Is its number closed, it becomes a remnant with a stop order, as any closed number at a contact:
    its own ending releases it. Is it beyond what the ledger knows, its task is claimed by it.
    """
    key, number = split_attempt_id(attempt)
    work = Work(connection, micros(now))
    work.lock_current([key], [attempt])
    task, claim = work.tasks.get(key), work.claims.get(attempt)
    if claim is not None and claim.held:
        return AGREES
    if task is None:
        return UNKNOWN
    if task.number >= number or task.final:
        return _as_remnant(work, task, number, place)
    if not task.pending:
        return Mending(Mended.NOT, f"number {task.number} is claimed as well: that comes first")
    if not adopt(work, task, number, place):
        return Mending(Mended.NOT, "its machine is not known")
    text = "claimed again: it runs, and its number is not closed"
    return noted(work, task, number, Mended.ASKED, text)


def _as_remnant(work: Work, task: TaskLine, number: int, place: str) -> Mending:
    claim = work.claims.get(attempt_id(task.key, number))
    if claim is None or claim.place != place:
        return STOPPED
    reopen(work, claim, Standing.REMNANT)
    end_closed(work, task, claim)
    text = "its number is closed: it holds its room again and is told to stop"
    return noted(work, task, number, Mended.ASKED, text)


def stop_of(attempt: str, place: str) -> StopOrder:
    """For an attempt that has no claim which could carry the order."""
    key, number = split_attempt_id(attempt)
    machine = split_place(place)[1]
    cause = StopCause.WORKFLOW_GONE
    return StopOrder(key=key, number=number, machine=machine, cause=cause, grace_s=30)
