"""Every machine as columns: the fast way from the ledger into a placement index.

Equal to `store.fleet.fleet` machine by machine; no object is made for any of them.
"""

from collections import defaultdict

from sqlalchemy import Connection

from domain.fleet import Beside, MachineColumns
from domain.resources import COLUMNS
from store.fleet import besides
from store.mapping import read_extra, read_labels, read_taints

_NAMES = (
    *("place", "cluster", "name", "zone", "rack", "labels", "taints"),
    *("cordoned", "reachable", "cap_extra", "used_extra"),
    *(f"cap_{name}" for name in COLUMNS),
    *(f"used_{name}" for name in COLUMNS),
)
_ALL = f"SELECT {', '.join(_NAMES)} FROM machine"  # noqa: S608 - our own names


def machine_columns(connection: Connection) -> MachineColumns:
    """Every machine of the ledger."""
    cursor = connection.connection.cursor()
    try:
        cursor.execute(_ALL)
        rows = cursor.fetchall()
    finally:
        cursor.close()
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
        beside=_beside(connection, told["place"]),
    )


def _beside(connection: Connection, places: tuple[str, ...]) -> dict[int, tuple[Beside, ...]]:
    there: dict[str, list[Beside]] = defaultdict(list)
    for place, beside in besides(connection):
        there[place].append(beside)
    if not there:
        return {}
    return {at: tuple(there[place]) for at, place in enumerate(places) if place in there}
