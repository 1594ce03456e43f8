"""Everything but tasks as readers see it: machines, clusters, partitions, totals."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select

from domain.attempt import Phase
from domain.resources import Resources
from domain.supervision import Reach
from domain.views import (
    ClusterDrainView,
    ClusterView,
    DrainView,
    MachineView,
    PartitionView,
    TeamUsage,
)
from store.drains import drains_of
from store.machines import CAPACITY
from store.mapping import (
    instant,
    instant_or_none,
    place_of,
    read_labels,
    read_taints,
    resources_of,
)
from store.tables import (
    BRAKE,
    CLAIM,
    CLUSTER,
    CLUSTER_DRAIN,
    DRAIN,
    HELD,
    MACHINE,
    PARTITION,
    PENDING,
    TASK,
    USAGE,
)
from store.writing import USED

MACHINES_MAX = 1_000


def machines(
    connection: Connection, *, cluster: str | None = None, after: str = "", limit: int = 100
) -> tuple[MachineView, ...]:
    """A page by cluster and name; `after` is `<cluster>/<name>` of the last one seen."""
    assert 1 <= limit <= MACHINES_MAX, limit
    statement = (
        select(MACHINE, CLUSTER.c.state)
        .join(CLUSTER, CLUSTER.c.name == MACHINE.c.cluster)
        .where(MACHINE.c.place > after)
    )
    if cluster is not None:
        statement = statement.where(MACHINE.c.cluster == cluster)
    rows = connection.execute(statement.order_by(MACHINE.c.place).limit(limit)).all()
    drains = drains_of(connection, [row.place for row in rows])
    return tuple(_machine(row, drains.get(row.place)) for row in rows)


def machine(connection: Connection, cluster: str, name: str) -> MachineView | None:
    """One machine."""
    statement = (
        select(MACHINE, CLUSTER.c.state)
        .join(CLUSTER, CLUSTER.c.name == MACHINE.c.cluster)
        .where(MACHINE.c.place == place_of(cluster, name))
    )
    row = connection.execute(statement).one_or_none()
    return None if row is None else _machine(row, drains_of(connection, [row.place]).get(row.place))


def clusters(connection: Connection) -> tuple[ClusterView, ...]:
    """All clusters by name, with how many machines they have and attempts they hold."""
    machine_counts = _counts(
        connection, select(MACHINE.c.cluster, func.count()).group_by(MACHINE.c.cluster)
    )
    held = select(CLAIM.c.cluster, func.count()).where(HELD).group_by(CLAIM.c.cluster)
    attempt_counts = _counts(connection, held)
    drained = select(DRAIN.c.cluster, func.count()).group_by(DRAIN.c.cluster)
    drained_counts = _counts(connection, drained)
    on_drained = held.join(DRAIN, DRAIN.c.place == CLAIM.c.place)
    left_counts = _counts(connection, on_drained) if drained_counts else {}
    lifted = connection.scalar(select(BRAKE.c.since).where(BRAKE.c.held == 0)) or 0
    whole = {row.cluster: row for row in connection.execute(select(CLUSTER_DRAIN))}
    rows = connection.execute(select(CLUSTER).order_by(CLUSTER.c.name))
    return tuple(
        ClusterView(
            name=row.name,
            state=Reach(row.state),
            epoch=row.epoch,
            instance=row.instance,
            http_address=row.http_address,
            site=row.site,
            registered_at=instant(row.registered_at),
            heard_at=instant(row.heard_at),
            silent_since=_silent_since(row, lifted),
            confirmed_by=row.confirmed_by,
            machines_braked_since=instant_or_none(row.machines_braked_since),
            machines=machine_counts.get(row.name, 0),
            attempts=attempt_counts.get(row.name, 0),
            drained_machines=drained_counts.get(row.name, 0),
            drained_attempts=left_counts.get(row.name, 0),
            drain=_whole_drain(whole.get(row.name)),
        )
        for row in rows
    )


def cluster(connection: Connection, name: str) -> ClusterView | None:
    """One cluster."""
    return next((view for view in clusters(connection) if view.name == name), None)


def partitions(connection: Connection) -> tuple[PartitionView, ...]:
    """All partitions that ever had work."""
    waiting = _counts(
        connection,
        select(TASK.c.partition, func.count()).where(PENDING).group_by(TASK.c.partition),
    )
    rows = connection.execute(select(PARTITION).order_by(PARTITION.c.number))
    return tuple(
        PartitionView(number=row.number, bell=row.bell, waiting=waiting.get(row.number, 0))
        for row in rows
    )


def phase_counts(connection: Connection) -> dict[Phase, int]:
    """How many tasks stand in each phase; phases without any are there with zero."""
    statement = select(TASK.c.phase, func.count()).group_by(TASK.c.phase)
    counts = _counts(connection, statement)
    return {phase: counts.get(phase.value, 0) for phase in Phase}


def team_usage(connection: Connection) -> tuple[TeamUsage, ...]:
    """What the open claims of each team hold."""
    rows = connection.execute(select(USAGE).order_by(USAGE.c.team))
    return tuple(
        TeamUsage(
            team=row.team,
            used=resources_of(
                (row.cpu_milli, row.memory_mib, row.gpu, row.disk_mib, row.net_mbps), row.extra
            ),
        )
        for row in rows
    )


def _whole_drain(row: Any) -> ClusterDrainView | None:
    if row is None:
        return None
    since, deadline = instant(row.began_at), instant_or_none(row.deadline)
    return ClusterDrainView(by=row.by, since=since, deadline=deadline)


def _silent_since(row: Any, lifted: int) -> datetime | None:
    """A suspect cluster's wait starts anew when the brake is lifted."""
    if row.silent_since is None or row.state != Reach.SUSPECT:
        return instant_or_none(row.silent_since)
    return instant(max(row.silent_since, lifted))


def _counts(connection: Connection, statement: Any) -> dict[Any, int]:
    return {row[0]: row[1] for row in connection.execute(statement)}


def _machine(row: Any, drain: DrainView | None) -> MachineView:
    values = row._mapping
    return MachineView(
        cluster=row.cluster,
        name=row.name,
        zone=row.zone,
        rack=row.rack,
        labels=read_labels(row.labels),
        taints=read_taints(row.taints),
        capacity=_resources(values, CAPACITY, row.cap_extra),
        used=_resources(values, USED, row.used_extra),
        cordoned=bool(row.cordoned),
        cordoned_by=row.cordoned_by,
        reachable=bool(row.reachable) and row.state == Reach.REACHABLE,
        drain=drain,
        updated_at=instant(row.updated_at),
    )


def _resources(values: Any, columns: tuple[str, ...], extra: str | None) -> Resources:
    cpu_milli, memory_mib, gpu, disk_mib, net_mbps = (values[name] for name in columns)
    return resources_of((cpu_milli, memory_mib, gpu, disk_mib, net_mbps), extra)
