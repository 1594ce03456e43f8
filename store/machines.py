"""The inventory: what agents report of machines, and what placement loads of them."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from domain.machine import MachineReport
from domain.protocol import MachineState
from domain.resources import COLUMNS
from store.bell import ring_waiting
from store.classes import class_body, class_digest, count_classes
from store.dialects import next_revision
from store.mapping import extra_text, micros, place_of, read_extra, taints_text
from store.tables import MACHINE

CAPACITY = tuple(f"cap_{column}" for column in COLUMNS)
_REPORTED = (
    *("instance", "zone", "rack", "labels", "taints", "class_digest", "cap_extra", "reachable"),
    *CAPACITY,
)
_WRITTEN = (*_REPORTED, "shrunk", "revision", "updated_at")
_SOME = MACHINE.c.place.in_(bindparam("keys", expanding=True))
_LOCK = select(MACHINE).where(_SOME).order_by(MACHINE.c.place).with_for_update(key_share=True)
_UPDATE = (
    update(MACHINE)
    .where(MACHINE.c.place == bindparam("b_place"))
    .values({name: bindparam(f"b_{name}") for name in _WRITTEN})
)


def save_reports(
    connection: Connection, cluster: str, reports: Sequence[MachineReport], now: datetime
) -> bool:
    """New and changed machines. True when there may be more room than before.

    What is used of a machine is the ledger's and stays; so does a cordon.
    """
    latest = {place_of(cluster, report.name): report for report in reports}
    if not latest:
        return False
    rows = connection.execute(_LOCK, {"keys": sorted(latest)})
    known = {row.place: row._mapping for row in rows}
    revision, at = next_revision(connection), micros(now)
    fresh, changed = [], []
    joined: list[str] = []
    left: list[str] = []
    for place, report in sorted(latest.items()):
        body = class_body(cluster, report)
        values = {**_values(report, class_digest(body)), "revision": revision, "updated_at": at}
        before = known.get(place)
        if before is None:
            fresh.append({"place": place, "cluster": cluster, "name": report.name, **values})
            joined.append(body)
            continue
        if all(before[name] == values[name] for name in _REPORTED):
            continue
        if before["class_digest"] != values["class_digest"]:
            joined.append(body)
            left.append(before["class_digest"])
        shrunk = before["shrunk"] or _shrinks(before, values)
        written = {f"b_{name}": v for name, v in {**values, "shrunk": int(shrunk)}.items()}
        changed.append({"b_place": place, **written})
    if fresh:
        connection.execute(insert(MACHINE), fresh)
    if changed:
        connection.execute(_UPDATE, changed)
    if joined or left:
        count_classes(connection, joined, left)
    return bool(fresh or changed)


def save_states(
    connection: Connection, cluster: str, states: Sequence[MachineState], now: datetime
) -> bool:
    """Keepers that fell silent or came back. True when a machine may be used again."""
    latest = {place_of(cluster, state.machine): int(state.reachable) for state in states}
    return _flag(connection, "reachable", latest, now, good=1)


def cordon(
    connection: Connection,
    cluster: str,
    machines: Iterable[str],
    *,
    cordoned: bool,
    by: str,
    now: datetime,
) -> set[int]:
    """Stop or allow new placements; the answer is the partitions to be rung."""
    wanted = {place_of(cluster, machine): int(cordoned) for machine in machines}
    freed = _flag(connection, "cordoned", wanted, now, good=0, by=by)
    return ring_waiting(connection, now) if freed else set()


def _flag(
    connection: Connection,
    column: str,
    wanted: dict[str, int],
    now: datetime,
    *,
    good: int,
    by: str = "",
) -> bool:
    if not wanted:
        return False
    rows = connection.execute(_LOCK, {"keys": sorted(wanted)}).all()
    changed = [row.place for row in rows if row._mapping[column] != wanted[row.place]]
    revision, at = next_revision(connection), micros(now)
    for flag in (0, 1):
        places = [place for place in changed if wanted[place] == flag]
        if places:
            values: dict[str, Any] = {column: flag, "revision": revision, "updated_at": at}
            if column == "cordoned":
                values["cordoned_by"] = by if flag else ""
            where = MACHINE.c.place.in_(places)
            connection.execute(update(MACHINE).where(where).values(values))
    return any(wanted[place] == good for place in changed)


def _values(report: MachineReport, digest: str) -> dict[str, Any]:
    return {
        "instance": report.instance,
        "zone": report.zone,
        "rack": report.rack,
        "labels": json.dumps(report.labels, sort_keys=True),
        "taints": taints_text(report.taints),
        "class_digest": digest,
        "cap_extra": extra_text(report.capacity.extra),
        "reachable": 1,
        **dict(zip(CAPACITY, report.capacity.vector(), strict=True)),
    }


def _shrinks(before: Any, after: dict[str, Any]) -> bool:
    if any(after[name] < before[name] for name in CAPACITY):
        return True
    extra = read_extra(after["cap_extra"])
    return any(extra.get(n, 0) < amount for n, amount in read_extra(before["cap_extra"]).items())
