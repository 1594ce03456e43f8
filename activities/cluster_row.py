"""Reads how a cluster's row stands, as far as supervision asks."""

from dataclasses import dataclass

from sqlalchemy import Connection, select

from domain.supervision import Reach
from store.tables import CLUSTER


@dataclass(frozen=True, slots=True)
class ClusterStanding:
    """A part of the row."""

    state: Reach
    epoch: int
    instance: str


def cluster_or_none(connection: Connection, name: str) -> ClusterStanding | None:
    """None when there is no row yet."""
    columns = (CLUSTER.c.state, CLUSTER.c.epoch, CLUSTER.c.instance)
    row = connection.execute(select(*columns).where(CLUSTER.c.name == name)).one_or_none()
    return None if row is None else ClusterStanding(Reach(row.state), row.epoch, row.instance)
