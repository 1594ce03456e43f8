"""Machines as placement loads them: all, or those that have changed since a revision.

Rows are states, not changes: reading one twice does no harm, missing one would.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from domain.fleet import Beside, Fleet, MachineStanding
from domain.supervision import Reach
from store.dialects import reading_mark
from store.mapping import read_extra, read_labels, read_taints
from store.prepared import KEYS, Prepared, one_of
from store.tables import BESIDE, CLAIM, CLUSTER, MACHINE

PLACES_PER_STATEMENT_MAX = 5_000
_NEIGHBOURS_CACHED_MAX = 10_000

_COLUMNS = select(
    *(MACHINE.c[name] for name in ("place", "cluster", "name", "zone", "rack", "labels", "taints")),
    *(c for c in MACHINE.c if c.name.startswith(("cap_", "used_"))),
    MACHINE.c.cordoned,
    MACHINE.c.reachable,
)
_ALL = Prepared(_COLUMNS)
_CHANGED = Prepared(_COLUMNS.where(MACHINE.c.revision >= bindparam("since")))
_CLUSTERS = Prepared(select(CLUSTER.c.name, CLUSTER.c.state))
_HOLDS_ROOM = (CLAIM.c.standing == "open") | (CLAIM.c.vouched == 0)
_BESIDE = (
    select(CLAIM.c.place, CLAIM.c.neighbour, func.count().label("count"))
    .where(BESIDE)
    .where(_HOLDS_ROOM)
    .group_by(CLAIM.c.place, CLAIM.c.neighbour)
)
_BESIDE_ALL = Prepared(_BESIDE)
_BESIDE_AT = Prepared(_BESIDE.where(one_of(CLAIM.c.place)))


def fleet(connection: Connection) -> Fleet:
    """Every machine."""
    mark = reading_mark(connection)  # Before the rows: a change in between is then read twice.
    rows = _ALL.rows(connection)
    return _fleet(connection, rows, _BESIDE_ALL.rows(connection), mark)


def fleet_changes(connection: Connection, since: int) -> Fleet:
    """The machines that may have changed since a read that answered with this revision."""
    mark = reading_mark(connection)
    rows = _CHANGED.rows(connection, {"since": since})
    return _fleet(connection, rows, _beside(connection, [row.place for row in rows]), mark)


def besides(
    connection: Connection, places: Sequence[str] | None = None
) -> list[tuple[str, Beside]]:
    """By the machine's place, what rules between tasks look at there; everywhere without places."""
    return [
        (row.place, Beside(*_neighbour(row.neighbour), row.count))
        for row in _beside(connection, places)
    ]


def _beside(connection: Connection, places: Sequence[str] | None) -> list[Any]:
    if places is None:
        return _BESIDE_ALL.rows(connection)
    found: list[Any] = []
    for first in range(0, len(places), PLACES_PER_STATEMENT_MAX):
        some = places[first : first + PLACES_PER_STATEMENT_MAX]
        found += _BESIDE_AT.rows(connection, {KEYS: some})
    return found


def clusters_usable(connection: Connection) -> dict[str, bool]:
    """Every cluster: True while it may be given new work."""
    rows = _CLUSTERS.rows(connection)
    return {row.name: row.state == Reach.REACHABLE for row in rows}


def _fleet(connection: Connection, rows: Sequence[Any], beside: Sequence[Any], mark: int) -> Fleet:
    by_place: dict[str, list[Beside]] = defaultdict(list)
    for row in beside:
        team, service, shuns = _neighbour(row.neighbour)
        by_place[row.place].append(Beside(team, service, shuns, row.count))
    return Fleet(
        machines=tuple(_standing(row, tuple(by_place.get(row.place, ()))) for row in rows),
        clusters=clusters_usable(connection),
        revision=mark,
    )


def _standing(row: Any, beside: tuple[Beside, ...]) -> MachineStanding:
    return MachineStanding(
        cluster=row.cluster,
        name=row.name,
        zone=row.zone,
        rack=row.rack,
        labels=read_labels(row.labels),
        taints=read_taints(row.taints),
        capacity=(
            *(row.cap_cpu_milli, row.cap_memory_mib, row.cap_gpu),
            *(row.cap_disk_mib, row.cap_net_mbps),
        ),
        used=(
            *(row.used_cpu_milli, row.used_memory_mib, row.used_gpu),
            *(row.used_disk_mib, row.used_net_mbps),
        ),
        cordoned=bool(row.cordoned),
        reachable=bool(row.reachable),
        capacity_extra=read_extra(row.cap_extra),
        used_extra=read_extra(row.used_extra),
        beside=beside,
    )


@lru_cache(maxsize=_NEIGHBOURS_CACHED_MAX)
def _neighbour(text: str) -> tuple[str, str | None, tuple[str, ...]]:
    team, service, shuns = json.loads(text)
    return team, service, tuple(shuns)
