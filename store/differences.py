"""What the auditor remembers: doubts, differences that stand, what has healed, and how often.

A difference is counted as found once, when it is certain, and as healed once, when a look finds it
gone. Doubts that the next look does not confirm are forgotten.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from domain.audit import (
    DIFFERENCES_PER_PAGE_MAX,
    LEDGER_FAULTS,
    AuditReport,
    Certainty,
    DifferenceView,
    Fault,
    FaultCount,
)
from store.acts import acts
from store.audit import Difference
from store.dialects import upsert
from store.mapping import instant, instant_or_none, micros
from store.mending import Mended, Mending
from store.tables import AUDIT_COUNT, AUDIT_RUN, DIFFERENCE, DOUBTFUL_MACHINE

HEALED_KEPT_MAX = 200
OPEN_DIFFERENCES_MAX = 10_000
"""Doubts and differences at once; what is found beyond them waits for a later audit."""
_UNHEALED = DIFFERENCE.c.standing != Certainty.HEALED.value
_STANDS = DIFFERENCE.c.standing == Certainty.STANDING.value


@dataclass(frozen=True, slots=True)
class Seen:
    """A difference at one look; `place`: the machine whose list has shown it."""

    difference: Difference
    place: str = ""


# --- runs ---------------------------------------------------------------------------------------


def begin_run(connection: Connection, now: datetime) -> int:
    """The number of a new audit."""
    at = micros(now)
    connection.execute(upsert(connection, AUDIT_RUN).values({"id": 1, "began_at": at}))
    fresh = {"began_at": at, "ended_at": None, "looked_at": 0, "machines_asked": 0}
    connection.execute(update(AUDIT_RUN).values(run=AUDIT_RUN.c.run + 1, **fresh))
    return int(connection.scalar(select(AUDIT_RUN.c.run)) or 0)


def looked(connection: Connection, run: int, rows: int) -> None:
    """So many rows more."""
    more = {"looked_at": AUDIT_RUN.c.looked_at + rows}
    connection.execute(update(AUDIT_RUN).where(AUDIT_RUN.c.run == run).values(more))


def goes_on_after(connection: Connection, key: str) -> None:
    """Where the next audit goes on through the ended tasks."""
    connection.execute(update(AUDIT_RUN).values(after_task=key))


def after_task(connection: Connection) -> str:
    """Where the slice of ended tasks begins."""
    return str(connection.scalar(select(AUDIT_RUN.c.after_task)) or "")


def end_run(connection: Connection, run: int, asked: int, unheard: int, now: datetime) -> None:
    """Old doubts and old news are forgotten."""
    values = {"ended_at": micros(now), "machines_asked": asked, "clusters_unheard": unheard}
    connection.execute(update(AUDIT_RUN).where(AUDIT_RUN.c.run == run).values(values))
    old = (DIFFERENCE.c.standing == Certainty.DOUBT.value) & (DIFFERENCE.c.run < run)
    connection.execute(delete(DIFFERENCE).where(old))
    kept = (
        select(DIFFERENCE.c.healed_at)
        .where(DIFFERENCE.c.standing == Certainty.HEALED.value)
        .order_by(DIFFERENCE.c.healed_at.desc())
        .offset(HEALED_KEPT_MAX)
        .limit(1)
    )
    newest_old = connection.scalar(kept)
    if newest_old is not None:
        connection.execute(delete(DIFFERENCE).where(DIFFERENCE.c.healed_at <= newest_old))


# --- what was seen ------------------------------------------------------------------------------


def note_seen(connection: Connection, run: int, seen: Iterable[Seen], now: datetime) -> int:
    """Remember what a look has shown; how many of them are only doubts so far."""
    at, doubts = micros(now), 0
    room = OPEN_DIFFERENCES_MAX - int(connection.scalar(_count(_UNHEALED)) or 0)
    for one in seen:
        known = _row(connection, one.difference.fault, one.difference.subject)
        texts = {"expected": one.difference.expected, "found": one.difference.found}
        values = {**texts, "run": run, "last_seen": at, "place": one.place}
        if known is None and room > 0:
            room -= 1
            fresh = {"fault": one.difference.fault.value, "subject": one.difference.subject}
            doubt = {"standing": Certainty.DOUBT.value, "first_seen": at}
            connection.execute(insert(DIFFERENCE).values({**fresh, **doubt, **values}))
            doubts += 1
        elif known is not None:
            if known.standing == Certainty.HEALED:
                values |= {"standing": Certainty.DOUBT.value, "first_seen": at, "healed_at": None}
            doubts += known.standing != Certainty.STANDING
            _set(connection, one.difference.fault, one.difference.subject, values)
    return doubts


def open_subjects(
    connection: Connection, faults: Collection[Fault], places: Collection[str] | None = None
) -> list[Any]:
    """Rows of doubts and standing differences of these kinds, oldest first."""
    names = [fault.value for fault in faults]
    rows = select(DIFFERENCE).where(_UNHEALED).where(DIFFERENCE.c.fault.in_(names))
    if places is not None:
        rows = rows.where(DIFFERENCE.c.place.in_(list(places)))
    ordered = rows.order_by(DIFFERENCE.c.first_seen, DIFFERENCE.c.fault, DIFFERENCE.c.subject)
    return list(connection.execute(ordered.limit(DIFFERENCES_PER_PAGE_MAX)))


def conclude(
    connection: Connection, fault: Fault, subject: str, mending: Mending, now: datetime
) -> Mended:
    """Write down what a second look has found or done, and count it."""
    row = _row(connection, fault, subject)
    if row is None or row.standing == Certainty.HEALED:
        return Mended.AGREES
    was_certain = row.standing == Certainty.STANDING
    if mending.mended is Mended.AGREES and not was_certain:
        mine = (DIFFERENCE.c.fault == fault.value) & (DIFFERENCE.c.subject == subject)
        connection.execute(delete(DIFFERENCE).where(mine))
        return Mended.AGREES
    healed = mending.mended in (Mended.AGREES, Mended.DONE)
    _add(connection, fault, found=int(not was_certain), healed=int(healed))
    values: dict[str, Any] = {"standing": Certainty.STANDING.value}
    if mending.how:
        values["healing"] = mending.how
    if healed:
        values |= {"standing": Certainty.HEALED.value, "healed_at": micros(now)}
    _set(connection, fault, subject, values)
    return mending.mended


# --- what is told -------------------------------------------------------------------------------


def report(connection: Connection) -> AuditReport:
    """The last audit, and everything that stands."""
    doubted = connection.scalar(select(func.count()).select_from(DOUBTFUL_MACHINE)) or 0
    known = {
        "counts": counts(connection),
        "standing": _views(connection, _STANDS, DIFFERENCE.c.first_seen),
        "healed": _views(connection, ~_UNHEALED, DIFFERENCE.c.healed_at.desc()),
        "acts": acts(connection),
        "machines_doubted": doubted,
    }
    run = connection.execute(select(AUDIT_RUN)).one_or_none()
    if run is None:
        return AuditReport.model_validate(known)
    return AuditReport.model_validate(
        {
            "run": run.run,
            "began_at": instant(run.began_at),
            "ended_at": instant_or_none(run.ended_at),
            "looked_at": run.looked_at,
            "machines_asked": run.machines_asked,
            "clusters_unheard": run.clusters_unheard,
            **known,
        }
    )


def counts(connection: Connection) -> Mapping[Fault, FaultCount]:
    """Of every kind, those that never occurred included."""
    ever = {row.fault: row for row in connection.execute(select(AUDIT_COUNT))}
    standing = select(DIFFERENCE.c.fault, func.count()).where(_STANDS).group_by(DIFFERENCE.c.fault)
    now = {row[0]: row[1] for row in connection.execute(standing)}
    return {
        fault: FaultCount(
            found=ever[fault.value].found if fault.value in ever else 0,
            healed=ever[fault.value].healed if fault.value in ever else 0,
            standing=now.get(fault.value, 0),
        )
        for fault in Fault
    }


def ledger_subjects(connection: Connection) -> list[tuple[Fault, str]]:
    """What the ledger alone has shown and is to be looked at again."""
    return [(Fault(row.fault), row.subject) for row in open_subjects(connection, LEDGER_FAULTS)]


def _views(connection: Connection, which: Any, order: Any) -> Sequence[DifferenceView]:
    rows = select(DIFFERENCE).where(which).order_by(order, DIFFERENCE.c.subject)
    return tuple(
        DifferenceView(
            fault=Fault(row.fault),
            subject=row.subject,
            place=row.place,
            certainty=Certainty(row.standing),
            expected=row.expected,
            found=row.found,
            healing=row.healing,
            first_seen=instant(row.first_seen),
            last_seen=instant(row.last_seen),
            healed_at=instant_or_none(row.healed_at),
        )
        for row in connection.execute(rows.limit(DIFFERENCES_PER_PAGE_MAX))
    )


def _count(which: Any) -> Any:
    return select(func.count()).select_from(DIFFERENCE).where(which)


def _row(connection: Connection, fault: Fault, subject: str) -> Any:
    mine = (DIFFERENCE.c.fault == fault.value) & (DIFFERENCE.c.subject == subject)
    return connection.execute(select(DIFFERENCE).where(mine)).one_or_none()


def _set(connection: Connection, fault: Fault, subject: str, values: Mapping[str, Any]) -> None:
    mine = (DIFFERENCE.c.fault == fault.value) & (DIFFERENCE.c.subject == subject)
    connection.execute(update(DIFFERENCE).where(mine).values(dict(values)))


def _add(connection: Connection, fault: Fault, *, found: int, healed: int) -> None:
    connection.execute(upsert(connection, AUDIT_COUNT).values({"fault": fault.value}))
    more = {"found": AUDIT_COUNT.c.found + found, "healed": AUDIT_COUNT.c.healed + healed}
    connection.execute(update(AUDIT_COUNT).where(AUDIT_COUNT.c.fault == fault.value).values(more))
