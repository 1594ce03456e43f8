"""Machines as columns, all or those that changed: the fast way into a placement index.

Equal to `store.fleet` machine by machine; no object is made for any of them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, select

from domain.fleet import Beside, MachineColumns
from domain.resources import COLUMNS
from store.dialects import reading_mark
from store.fleet import PLACES_PER_STATEMENT_MAX, besides, clusters_usable
from store.mapping import read_extra, read_labels, read_taints
from store.prepared import KEYS, Prepared, one_of
from store.tables import MACHINE

_NAMES = (
    *("place", "cluster", "name", "zone", "rack", "labels", "taints"),
    *("cordoned", "reachable", "cap_extra", "used_extra"),
    *(f"cap_{name}" for name in COLUMNS),
    *(f"used_{name}" for name in COLUMNS),
)
_SELECT = select(*(MACHINE.c[name] for name in _NAMES))
_ALL = Prepared(_SELECT)
_SINCE = MACHINE.c.revision >= bindparam("since")
_CHANGED = Prepared(_SELECT.where(_SINCE))
_CHANGED_PLACES = Prepared(select(MACHINE.c.place, MACHINE.c.revision).where(_SINCE))
_AT = Prepared(_SELECT.where(one_of(MACHINE.c.place)))
NOTHING_KNOWN: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class FleetColumns:
    """All machines, or those that changed since a revision; clusters are always complete."""

    machines: MachineColumns
    clusters: Mapping[str, bool]
    """Every cluster: True while it may be given new work."""
    revision: int
    """Pass it to the next read of changes."""


def fleet_columns(connection: Connection) -> FleetColumns:
    """Every machine."""
    mark = reading_mark(connection)  # Before the rows: a change in between is then read twice.
    return FleetColumns(machine_columns(connection), clusters_usable(connection), mark)


def changed_columns(
    connection: Connection, since: int, known: Mapping[str, int] = NOTHING_KNOWN
) -> FleetColumns:
    """The machines that may have changed since a read that answered with this revision.

    `known`: by place, revisions whose state the caller has already; such a machine is left out.
    """
    mark = reading_mark(connection)
    if known:
        rows = _rows_at(connection, _unknown(connection, since, known))
    else:
        rows = _CHANGED.tuples(connection, {"since": since})
    places = [row[0] for row in rows]
    columns = _columns(rows, besides(connection, places))
    return FleetColumns(columns, clusters_usable(connection), mark)


def _unknown(connection: Connection, since: int, known: Mapping[str, int]) -> list[str]:
    changed = _CHANGED_PLACES.tuples(connection, {"since": since})
    return [place for place, revision in changed if known.get(place) != revision]


def _rows_at(connection: Connection, places: Sequence[str]) -> list[Any]:
    rows: list[Any] = []
    for first in range(0, len(places), PLACES_PER_STATEMENT_MAX):
        some = places[first : first + PLACES_PER_STATEMENT_MAX]
        rows += _AT.tuples(connection, {KEYS: some})
    return rows


def machine_columns(connection: Connection) -> MachineColumns:
    """Every machine of the ledger."""
    return _columns(_ALL.tuples(connection), besides(connection))


def _columns(rows: Sequence[Any], beside: Sequence[tuple[str, Beside]]) -> MachineColumns:
    told = dict(zip(_NAMES, zip(*rows, strict=True) if rows else [()] * len(_NAMES), strict=True))
    pairs = list(zip(told["labels"], told["taints"], strict=True))
    codes = {pair: code for code, pair in enumerate(dict.fromkeys(pairs))}
    extras = enumerate(zip(told["cap_extra"], told["used_extra"], strict=True))
    return MachineColumns(
        cluster=told["cluster"],
        name=told["name"],
        zone=told["zone"],
        rack=told["rack"],
        marking=list(map(codes.__getitem__, pairs)),
        markings=[(read_labels(labels), read_taints(taints)) for labels, taints in codes],
        capacity=[told[f"cap_{name}"] for name in COLUMNS],
        used=[told[f"used_{name}"] for name in COLUMNS],
        cordoned=told["cordoned"],
        reachable=told["reachable"],
        extras={at: (read_extra(c), read_extra(u)) for at, (c, u) in extras if c or u},
        beside=_by_row(told["place"], beside),
    )


def _by_row(
    places: Sequence[str], beside: Sequence[tuple[str, Beside]]
) -> dict[int, tuple[Beside, ...]]:
    if not beside:
        return {}
    there: dict[str, list[Beside]] = defaultdict(list)
    for place, one in beside:
        there[place].append(one)
    return {at: tuple(there[place]) for at, place in enumerate(places) if place in there}
