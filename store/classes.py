"""The distinct kinds of machines: what submission asks before it accepts a task."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache

from sqlalchemy import Connection, bindparam, select, update

from domain.feasibility import refusal_of
from domain.machine import MachineClass, MachineReport
from domain.task import TaskSpec
from store.dialects import upsert
from store.mapping import read_class
from store.prepared import KEYS, Prepared, one_of
from store.tables import MACHINE_CLASS

CLASSES_CACHED_MAX = 20_000
HOLDERS_KEPT_MAX = 10_000
_HOLDERS: dict[str, str] = {}
"""By shape, the digest of a class that could hold it."""

_MOVE = (
    update(MACHINE_CLASS)
    .where(MACHINE_CLASS.c.digest == bindparam("b_digest"))
    .values(machines=MACHINE_CLASS.c.machines + bindparam("b_change"))
)
_ALL = Prepared(
    select(MACHINE_CLASS.c.body, MACHINE_CLASS.c.machines).where(MACHINE_CLASS.c.machines > 0)
)
_THERE = Prepared(
    select(MACHINE_CLASS.c.digest)
    .where(one_of(MACHINE_CLASS.c.digest))
    .where(MACHINE_CLASS.c.machines > 0)
)


def machine_classes(connection: Connection) -> tuple[MachineClass, ...]:
    """Every class of which there are machines, silent and cordoned ones included."""
    return tuple(_counted(*row) for row in _ALL.tuples(connection))


@lru_cache(maxsize=CLASSES_CACHED_MAX)
def _counted(body: str, machines: int) -> MachineClass:
    return read_class(body).model_copy(update={"machines": machines})


def surely_held(connection: Connection, shapes: Collection[str]) -> set[str]:
    """Those of these shapes that a class could hold of which there are machines, as far as this
    process remembers: one look-up instead of a look at every class."""
    holders = {shape: _HOLDERS[shape] for shape in shapes if shape in _HOLDERS}
    if not holders:
        return set()
    rows = _THERE.tuples(connection, {KEYS: sorted(set(holders.values()))})
    there = {digest for (digest,) in rows}
    return {shape for shape, digest in holders.items() if digest in there}


def remember_holder(shape: str, spec: TaskSpec, classes: Iterable[MachineClass]) -> None:
    """One of these could hold a task of this shape: a class is its digest, in whatever ledger."""
    holder = next((one for one in classes if refusal_of(spec, one) is None), None)
    if holder is None:
        return
    if len(_HOLDERS) >= HOLDERS_KEPT_MAX:
        _HOLDERS.clear()
    body = holder.model_copy(update={"machines": 1}).model_dump_json()
    _HOLDERS[shape] = class_digest(body)


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
