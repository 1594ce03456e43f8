"""The distinct kinds of machines: what submission asks before it accepts a task."""

import hashlib
from collections import Counter
from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, select, update

from domain.machine import MachineClass, MachineReport
from store.dialects import upsert
from store.mapping import read_class
from store.prepared import Prepared
from store.tables import MACHINE_CLASS

_MOVE = (
    update(MACHINE_CLASS)
    .where(MACHINE_CLASS.c.digest == bindparam("b_digest"))
    .values(machines=MACHINE_CLASS.c.machines + bindparam("b_change"))
)
_ALL = Prepared(
    select(MACHINE_CLASS.c.body, MACHINE_CLASS.c.machines).where(MACHINE_CLASS.c.machines > 0)
)


def machine_classes(connection: Connection) -> tuple[MachineClass, ...]:
    """Every class of which there are machines, silent and cordoned ones included."""
    rows = _ALL.rows(connection)
    return tuple(
        known
        if known.machines == row.machines
        else known.model_copy(update={"machines": row.machines})
        for row in rows
        for known in (read_class(row.body),)
    )


def class_body(cluster: str, report: MachineReport) -> str:
    """The class of a machine in canonical JSON."""
    capacity = report.capacity
    kept = MachineClass(
        cluster=cluster,
        zone=report.zone,
        capacity=capacity.model_copy(update={"extra": dict(sorted(capacity.extra.items()))}),
        labels=dict(sorted(report.labels.items())),
        taints=report.taints,
    )
    return kept.model_dump_json()


def class_digest(body: str) -> str:
    """The class's name."""
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()


def count_classes(connection: Connection, joined: Iterable[str], left: Iterable[str]) -> None:
    """Machines of these classes (bodies) came, and of those (digests) went."""
    bodies = {class_digest(body): body for body in joined}
    change = Counter(class_digest(body) for body in joined)
    change.subtract(left)
    if bodies:
        fresh = upsert(connection, MACHINE_CLASS)
        rows = [{"digest": digest, "body": body} for digest, body in sorted(bodies.items())]
        connection.execute(fresh, rows)
    moves = [{"b_digest": d, "b_change": n} for d, n in sorted(change.items()) if n]
    if moves:
        connection.execute(_MOVE, moves)
