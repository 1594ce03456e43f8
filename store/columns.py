"""Machines as columns, all or those that changed: the fast way into a placement index.

Equal to `store.fleet` machine by machine; no object is made for any of them.
"""

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, select

from domain.fleet import Beside, MachineColumns
from domain.resources import COLUMNS
from store.dialects import reading_mark
from store.fleet import PLACES_PER_STATEMENT_MAX, besides, clusters_usable
from store.mapping import place_of, read_extra, read_labels, read_taints
from store.prepared import KEYS, Prepared, one_of
from store.tables import MACHINE

_BETWEEN = "\n"
"""Between labels and taints, where they are read as one text; JSON in one line holds none."""
_NUMBERS = (
    *("cordoned", "reachable"),
    *(f"cap_{name}" for name in COLUMNS),
    *(f"used_{name}" for name in COLUMNS),
)
_REPEATED = ("cluster", "zone", "rack", "marks")
"""Texts that many machines have in common: each is kept once."""
_OWN = ("name", "cap_extra", "used_extra")
_NAMES = (*_NUMBERS, *_REPEATED, *_OWN)
_MARKS = (MACHINE.c.labels + _BETWEEN + MACHINE.c.taints).label("marks")
_SELECT = select(*(_MARKS if name == "marks" else MACHINE.c[name] for name in _NAMES))
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
    told = _Told()
    if known:
        places = _unknown(connection, since, known)
        for first in range(0, len(places), PLACES_PER_STATEMENT_MAX):
            told.add(_AT, connection, {KEYS: places[first : first + PLACES_PER_STATEMENT_MAX]})
    else:
        told.add(_CHANGED, connection, {"since": since})
    columns = _columns(told, besides(connection, told.places()))
    return FleetColumns(columns, clusters_usable(connection), mark)


def _unknown(connection: Connection, since: int, known: Mapping[str, int]) -> list[str]:
    changed = _CHANGED_PLACES.tuples(connection, {"since": since})
    return [place for place, revision in changed if known.get(place) != revision]


def machine_columns(connection: Connection) -> MachineColumns:
    """Every machine of the ledger."""
    told = _Told()
    told.add(_ALL, connection)
    return _columns(told, besides(connection))


class _Told:
    """What the table says, by columns."""

    def __init__(self) -> None:
        self.numbers = {name: array("q") for name in _NUMBERS}
        self.texts: dict[str, list[Any]] = {name: [] for name in (*_REPEATED, *_OWN)}
        self._known: dict[str, str] = {}

    def add(
        self, statement: Prepared, connection: Connection, params: Mapping[str, Any] | None = None
    ) -> None:
        """The rows of one answer."""
        once = self._known.setdefault
        for piece in statement.pieces(connection, params):
            for name, values in zip(_NAMES, piece, strict=True):
                if name in self.numbers:
                    self.numbers[name].extend(values)
                elif name in _REPEATED:
                    self.texts[name] += map(once, values, values)
                else:
                    self.texts[name] += values

    def places(self) -> list[str]:
        """The machines in one text each."""
        return list(map(place_of, self.texts["cluster"], self.texts["name"]))


def _columns(told: _Told, beside: Sequence[tuple[str, Beside]]) -> MachineColumns:
    texts, numbers = told.texts, told.numbers
    codes = {marks: code for code, marks in enumerate(dict.fromkeys(texts["marks"]))}
    markings = [marks.partition(_BETWEEN) for marks in codes]
    extras = enumerate(zip(texts["cap_extra"], texts["used_extra"], strict=True))
    return MachineColumns(
        cluster=texts["cluster"],
        name=texts["name"],
        zone=texts["zone"],
        rack=texts["rack"],
        marking=list(map(codes.__getitem__, texts["marks"])),
        markings=[(read_labels(labels), read_taints(taints)) for labels, _, taints in markings],
        capacity=[numbers[f"cap_{name}"] for name in COLUMNS],
        used=[numbers[f"used_{name}"] for name in COLUMNS],
        cordoned=numbers["cordoned"],
        reachable=numbers["reachable"],
        extras={at: (read_extra(c), read_extra(u)) for at, (c, u) in extras if c or u},
        beside=_by_row(told.places(), beside) if beside else {},
    )


def _by_row(
    places: Sequence[str], beside: Sequence[tuple[str, Beside]]
) -> dict[int, tuple[Beside, ...]]:
    there: dict[str, list[Beside]] = defaultdict(list)
    for place, one in beside:
        there[place].append(one)
    return {at: tuple(there[place]) for at, place in enumerate(places) if place in there}
