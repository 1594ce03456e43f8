"""What is free, and what it is good for: added up by the database, a scan of machines a shape."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select

from domain.headroom import Headroom, ResourceRoom, ShapeRoom
from domain.resources import COLUMNS, QUANTITY_MAX, Resources
from domain.supervision import Reach
from store.tables import CLAIM, CLUSTER, HELD, MACHINE, PENDING, TASK

SHAPES_MAX = 10
"""Demands that are looked at: each is a scan of the machines."""

_FROM = MACHINE.join(CLUSTER, CLUSTER.c.name == MACHINE.c.cluster)
_OPEN = and_(
    MACHINE.c.cordoned == 0, MACHINE.c.reachable == 1, CLUSTER.c.state == Reach.REACHABLE.value
)
Ask = dict[str, int]


def headroom(connection: Connection) -> Headroom:
    """Over the whole fleet, as it stands now."""
    asks = _asks(connection)
    totals = _totals(connection, [ask for ask, _ in asks])
    machines = connection.scalar(select(func.count()).select_from(_FROM).where(_OPEN)) or 0
    shapes = tuple(_shape(connection, ask, waiting) for ask, waiting in asks)
    return Headroom(machines=machines, resources=totals, shapes=shapes)


def _asks(connection: Connection) -> list[tuple[Ask, int]]:
    """What most tasks wait for, then what most attempts hold; each with how many wait."""
    found: dict[tuple[int, ...], int] = {}
    for table, condition, waits in ((TASK, PENDING, True), (CLAIM, HELD, False)):
        columns = [table.c[name] for name in COLUMNS]
        number = func.count()
        statement = select(*columns, number).where(condition).group_by(*columns)
        rows = connection.execute(statement.order_by(number.desc(), *columns).limit(SHAPES_MAX))
        for *vector, count in rows:
            found.setdefault(tuple(vector), count if waits else 0)
    listed = [(dict(zip(COLUMNS, vector, strict=True)), n) for vector, n in found.items()]
    return [(ask, waiting) for ask, waiting in listed if any(ask.values())][:SHAPES_MAX]


def _free(name: str) -> ColumnElement[int]:
    """Never below zero: a machine may have shrunk under what it holds."""
    left = MACHINE.c[f"cap_{name}"] - MACHINE.c[f"used_{name}"]
    return case((left > 0, left), else_=0)


def _fits(ask: Ask) -> ColumnElement[bool]:
    return and_(*(_free(name) >= amount for name, amount in ask.items() if amount))


def _sum(amount: ColumnElement[int], *conditions: ColumnElement[bool]) -> ColumnElement[int]:
    if conditions:
        amount = case((and_(*conditions), amount), else_=0)
    return func.coalesce(func.sum(amount), 0)


def _totals(connection: Connection, asks: Sequence[Ask]) -> dict[str, ResourceRoom]:
    columns: list[Any] = []
    for name in COLUMNS:
        wanting = [_fits(ask) for ask in asks if ask[name]]
        useless = [~or_(*wanting)] if wanting else []
        columns += [
            _sum(MACHINE.c[f"cap_{name}"]),
            _sum(MACHINE.c[f"used_{name}"]),
            _sum(_free(name), ~_OPEN),
            _sum(_free(name), _OPEN),
            func.coalesce(func.max(case((_OPEN, _free(name)), else_=0)), 0),
            _sum(_free(name), _OPEN, *useless) if wanting else _sum(_free(name) * 0),
        ]
    row = [int(amount) for amount in connection.execute(select(*columns).select_from(_FROM)).one()]
    names = list(ResourceRoom.model_fields)
    return {
        name: ResourceRoom(**dict(zip(names, row[at * 6 : at * 6 + 6], strict=True)))
        for at, name in enumerate(COLUMNS)
    }


def _shape(connection: Connection, ask: Ask, waiting: int) -> ShapeRoom:
    wanted = {name: amount for name, amount in ask.items() if amount}
    fits = and_(_OPEN, _fits(ask))
    least = func.min if connection.dialect.name == "sqlite" else func.least
    # The second argument makes SQLite's `min` the least of its arguments, and bounds the answer.
    more = least(*(_free(name) // amount for name, amount in wanted.items()), QUANTITY_MAX)
    columns = [_sum(case((fits, 1), else_=0)), _sum(more, fits)]
    columns += [_sum(_free(name), _OPEN, ~_fits(ask)) for name in wanted]
    row = connection.execute(select(*columns).select_from(_FROM)).one()
    fragmented = {name: min(int(n), QUANTITY_MAX) for name, n in zip(wanted, row[2:], strict=True)}
    return ShapeRoom(
        resources=Resources.model_validate(ask),
        waiting=waiting,
        machines=int(row[0]),
        more=int(row[1]),
        fragmented=Resources.model_validate(fragmented),
    )
