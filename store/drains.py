"""Machines that are being emptied: cordoned, and their attempts stopped as room is elsewhere.

An attempt with nowhere to go is kept and named until the drain's deadline. A stop that nobody has
sent yet is taken back when the drain ends, so of each task one attempt lives, whatever comes when.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from domain.attempt import StopCause
from domain.feasibility import refusal_of
from domain.machine import MachineClass
from domain.protocol import DrainMachines
from domain.resources import COLUMNS, Resources
from domain.supervision import Reach
from domain.views import DrainView
from store.acts import note_act
from store.lines import Standing
from store.locking import Work
from store.machines import CAPACITY, cordon
from store.mapping import (
    instant,
    instant_or_none,
    micros,
    read_labels,
    read_spec,
    read_taints,
    resources_of,
)
from store.orders import has_order
from store.tables import CLAIM, CLUSTER, CLUSTER_DRAIN, DRAIN, HELD, MACHINE, SPEC, TASK
from store.transitions import order_stop, withdraw_stop
from store.writing import USED, write

LOOK_S = 5.0
"""Between two looks at a machine that is drained: what was stopped has taken its room meanwhile."""
MACHINES_PER_LOOK_MAX = 100
STOPS_PER_LOOK_MAX = 100
"""No further machine is looked at beyond it."""
SEARCHES_PER_LOOK_MAX = 20_000
"""Machines asked whether they could hold a task: a tenth of a second."""
TARGETS_PER_LOOK_MAX = 2_000
"""Machines among which room is looked for; a place beyond them is found at a later look."""
BLOCKED_SHOWN_MAX = 20


def set_drain(connection: Connection, cluster: str, wish: DrainMachines, now: datetime) -> set[int]:
    """Begin, change or end the drain of some machines; without names of the cluster as a whole.

    The answer is the partitions to be rung. Machines that are not there are passed over.
    """
    mine = select(MACHINE).where(MACHINE.c.cluster == cluster).order_by(MACHINE.c.place)
    if wish.machines:
        mine = mine.where(MACHINE.c.name.in_(wish.machines))
    else:
        _set_whole(connection, cluster, wish, now)
    rows = connection.execute(mine).all()
    if not wish.drained:
        return _end(connection, cluster, [row.place for row in rows], now)
    deadline = None if wish.deadline is None else micros(wish.deadline)
    rings = _begin(connection, cluster, rows, wish.by, deadline, now)
    subject = ", ".join(wish.machines) or "all machines"
    note_act(connection, wish.by, "drain", f"{subject} of {cluster}"[:200], now)
    return rings


def _set_whole(connection: Connection, cluster: str, wish: DrainMachines, now: datetime) -> None:
    # As a heartbeat does first: what it brings is there for us to drain, or it sees the drain.
    row = select(CLUSTER.c.epoch).where(CLUSTER.c.name == cluster)
    connection.execute(row.with_for_update(key_share=True))
    where = CLUSTER_DRAIN.c.cluster == cluster
    before = connection.scalar(select(CLUSTER_DRAIN.c.began_at).where(where))
    connection.execute(delete(CLUSTER_DRAIN).where(where))
    if wish.drained:
        values = {
            "cluster": cluster,
            "by": wish.by,
            "began_at": before or micros(now),
            "deadline": None if wish.deadline is None else micros(wish.deadline),
        }
        connection.execute(insert(CLUSTER_DRAIN).values(values))


def unknown_if_drained(connection: Connection, cluster: str, names: Collection[str]) -> set[str]:
    """Those of these machines that are new, if the cluster is being emptied as a whole."""
    whole = select(CLUSTER_DRAIN.c.cluster).where(CLUSTER_DRAIN.c.cluster == cluster)
    if not names or connection.scalar(whole) is None:
        return set()
    mine = select(MACHINE.c.name).where(MACHINE.c.cluster == cluster)
    return set(names) - set(connection.scalars(mine.where(MACHINE.c.name.in_(names))))


def drain_joined(
    connection: Connection, cluster: str, names: Collection[str], now: datetime
) -> None:
    """Machines that have just joined a cluster which is being emptied: they are, too."""
    if not names:
        return
    whole = select(CLUSTER_DRAIN).where(CLUSTER_DRAIN.c.cluster == cluster)
    drain = connection.execute(whole).one()
    mine = select(MACHINE).where(MACHINE.c.cluster == cluster).where(MACHINE.c.name.in_(names))
    rows = connection.execute(mine.order_by(MACHINE.c.place)).all()
    _begin(connection, cluster, rows, drain.by, drain.deadline, now)


def _begin(
    connection: Connection,
    cluster: str,
    rows: Sequence[Any],
    by: str,
    deadline: int | None,
    now: datetime,
) -> set[int]:
    known = set(connection.scalars(_at([row.place for row in rows], DRAIN.c.place)))
    names = [row.name for row in rows]
    rings = cordon(connection, cluster, names, cordoned=True, by=by, now=now)
    changed = {"by": by, "deadline": deadline, "looked_at": 0}
    connection.execute(update(DRAIN).where(DRAIN.c.place.in_(known)).values(changed))
    fresh = [row for row in rows if row.place not in known]
    if fresh:
        common = {**changed, "cluster": cluster, "began_at": micros(now), "blocked": "[]"}
        connection.execute(
            insert(DRAIN),
            [{**common, "place": row.place, "cordoned_before": row.cordoned} for row in fresh],
        )
    return rings


def _end(connection: Connection, cluster: str, asked: Sequence[str], now: datetime) -> set[int]:
    """What was cordoned before stays so; stop orders that were not sent are taken back."""
    drains = connection.execute(_at(asked)).all()
    places = [row.place for row in drains]
    named = [row.place.partition("/")[2] for row in drains if not row.cordoned_before]
    waiting = connection.execute(
        select(CLAIM.c.attempt, CLAIM.c.key)
        .where(_open_at(cluster, places))
        .where(CLAIM.c.stop_cause == StopCause.DRAIN.value)
        .where(CLAIM.c.stop_sent == 0)
    ).all()
    work = Work(connection, micros(now))
    work.lock_tasks({row.key for row in waiting})
    work.lock_claims([row.attempt for row in waiting])
    for attempt in sorted(work.claims):
        claim = work.claims[attempt]
        if claim.open and claim.stop_cause == StopCause.DRAIN and not claim.stop_sent:
            withdraw_stop(work, work.tasks[claim.key], claim)
            claim.to_deliver = int(has_order(claim))
    rings = write(work)
    connection.execute(delete(DRAIN).where(DRAIN.c.place.in_(places)))
    return rings | cordon(connection, cluster, named, cordoned=False, by="", now=now)


def drains_due(connection: Connection, cluster: str, now: datetime) -> bool:
    """True while a machine of this cluster is drained and was not looked at for some time."""
    due = select(DRAIN.c.place).where(_due(cluster, now)).limit(1)
    return connection.scalar(due) is not None


def stop_drained(connection: Connection, cluster: str, now: datetime) -> int:
    """Look at machines that are drained: order the stop of what may go; how many were ordered.

    Those that are beyond the bounds of one look stay due, and come first at the next.
    """
    due = select(DRAIN).where(_due(cluster, now)).order_by(DRAIN.c.looked_at, DRAIN.c.place)
    drains = connection.execute(due.limit(MACHINES_PER_LOOK_MAX)).all()
    if not drains:
        return 0
    at = micros(now)
    here = _attempts_at(connection, cluster, [row.place for row in drains])
    room = _Room(_targets(connection) if here else [])
    going: dict[str, str] = {}
    for drain in drains:
        if len(going) >= STOPS_PER_LOOK_MAX or room.tired:
            break
        over = drain.deadline is not None and drain.deadline <= at
        blocked = []
        for row in room.in_turn(here.get(drain.place, []), at):
            if over or room.takes(row.shape, row.body):
                going[row.attempt] = row.key
            else:
                blocked.append(row.key)
        shown = {"looked_at": at, "blocked": json.dumps(blocked[:BLOCKED_SHOWN_MAX])}
        connection.execute(update(DRAIN).where(DRAIN.c.place == drain.place).values(shown))
    return _stop(connection, going, now)


def drains_of(connection: Connection, places: Iterable[str]) -> dict[str, DrainView]:
    """By place: those of these machines that are drained, and what is left there."""
    rows = connection.execute(_at(list(places))).all()
    if not rows:
        return {}
    drained = [row.place for row in rows]
    held = select(CLAIM.c.place, func.count()).where(HELD).where(CLAIM.c.place.in_(drained))
    left = {row[0]: row[1] for row in connection.execute(held.group_by(CLAIM.c.place))}
    return {
        row.place: DrainView(
            by=row.by,
            since=instant(row.began_at),
            deadline=instant_or_none(row.deadline),
            attempts=left.get(row.place, 0),
            blocked_by=tuple(json.loads(row.blocked)),
        )
        for row in rows
    }


def _stop(connection: Connection, going: dict[str, str], now: datetime) -> int:
    work = Work(connection, micros(now))
    work.lock_tasks(set(going.values()))
    work.lock_claims(list(going))
    stopped = 0
    for attempt in sorted(work.claims):
        claim = work.claims[attempt]
        if claim.open:
            stopped += order_stop(work, work.tasks[claim.key], claim, StopCause.DRAIN)
    write(work)
    return stopped


def _attempts_at(
    connection: Connection, cluster: str, places: Sequence[str]
) -> dict[str, list[Any]]:
    """Attempts that run there and are not told to stop, the oldest first."""
    rows = connection.execute(
        select(CLAIM.c.attempt, CLAIM.c.key, CLAIM.c.place, TASK.c.shape, SPEC.c.body)
        .join(TASK, TASK.c.key == CLAIM.c.key)
        .join(SPEC, SPEC.c.key == CLAIM.c.key)
        .where(_open_at(cluster, places))
        .where(CLAIM.c.stop_cause.is_(None))
        .order_by(CLAIM.c.claimed_at, CLAIM.c.attempt)
    )
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[row.place].append(row)
    return found


class _Room:
    """What is free elsewhere. Taken away as it is counted on, so no two count on the same.

    It only shrinks: a shape that has found none of it is not looked up again, and one that has
    goes on from where it found it.
    """

    def __init__(self, targets: list[MachineClass]) -> None:
        self._targets = targets
        self._next: dict[str, int] = {}
        self._searched = 0

    def in_turn(self, rows: list[Any], at: int) -> list[Any]:
        """The oldest first; where one look may not reach all, each look begins elsewhere."""
        if len(rows) * len(self._targets) <= SEARCHES_PER_LOOK_MAX:
            return rows
        first = at // round(LOOK_S * 1_000_000) % len(rows)
        return rows[first:] + rows[:first]

    @property
    def tired(self) -> bool:
        """Enough was looked at for one transaction."""
        return self._searched >= SEARCHES_PER_LOOK_MAX

    def takes(self, shape: str, body: str) -> bool:
        """True when a machine can hold a task of this shape, which then takes its room there."""
        if self.tired:
            return False
        spec = read_spec(body)
        for place in range(self._next.get(shape, 0), len(self._targets)):
            self._searched += 1
            target = self._targets[place]
            if refusal_of(spec, target) is None:
                rest = _less(target.capacity, spec.resources)
                self._targets[place] = target.model_copy(update={"capacity": rest})
                self._next[shape] = place
                return True
        self._next[shape] = len(self._targets)
        return False


def _targets(connection: Connection) -> list[MachineClass]:
    """Machines that may be given work, with what is free of them."""
    usable = (
        select(MACHINE)
        .join(CLUSTER, CLUSTER.c.name == MACHINE.c.cluster)
        .where(CLUSTER.c.state == Reach.REACHABLE.value)
        .where(MACHINE.c.reachable == 1)
        .where(MACHINE.c.cordoned == 0)
        .order_by((MACHINE.c.cap_cpu_milli - MACHINE.c.used_cpu_milli).desc(), MACHINE.c.place)
        .limit(TARGETS_PER_LOOK_MAX)
    )
    return [_free(row) for row in connection.execute(usable)]


def _free(row: Any) -> MachineClass:
    there, used = (
        resources_of(tuple(row._mapping[name] for name in names), extra)
        for names, extra in ((CAPACITY, row.cap_extra), (USED, row.used_extra))
    )
    # Of our own columns: not looked at again, for there may be thousands.
    return MachineClass.model_construct(
        cluster=row.cluster,
        zone=row.zone,
        capacity=_less(there, used),
        labels=read_labels(row.labels),
        taints=read_taints(row.taints),
    )


def _less(there: Resources, taken: Resources) -> Resources:
    """What is left; a machine that has shrunk holds more than it has, so never below nothing."""
    vector = zip(COLUMNS, there.vector(), taken.vector(), strict=True)
    left: dict[str, Any] = {name: max(0, has - takes) for name, has, takes in vector}
    extra = {n: max(0, has - taken.extra.get(n, 0)) for n, has in there.extra.items()}
    return Resources.model_validate({**left, "extra": {n: has for n, has in extra.items() if has}})


def _due(cluster: str, now: datetime) -> ColumnElement[bool]:
    before = micros(now) - round(LOOK_S * 1_000_000)
    return (DRAIN.c.cluster == cluster) & (DRAIN.c.looked_at <= before)


def _open_at(cluster: str, places: Sequence[str]) -> ColumnElement[bool]:
    mine = (CLAIM.c.cluster == cluster) & CLAIM.c.place.in_(places)
    return mine & (CLAIM.c.standing == Standing.OPEN.value)


def _at(places: Sequence[str], *columns: ColumnElement[Any]) -> Any:
    return select(*(columns or (DRAIN,))).where(DRAIN.c.place.in_(places)).order_by(DRAIN.c.place)
