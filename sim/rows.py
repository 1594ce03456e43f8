"""What the ledger's rows say, for the shells that must know and for the checks that judge."""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import Connection, select

from domain.attempt import Ending, Outcome
from domain.retry import Cause
from domain.supervision import Reach
from store.tables import CLAIM, CLUSTER, HELD, TASK, USAGE

_AMOUNTS = ("cpu_milli", "memory_mib", "gpu", "disk_mib", "net_mbps")


@dataclass(frozen=True)
class ClusterStanding:
    """A part of a cluster's row."""

    state: Reach
    epoch: int
    instance: str


@dataclass(frozen=True)
class TaskStanding:
    """A part of a task's row."""

    key: str
    phase: str
    number: int
    outcome: Outcome | None


def standing(connection: Connection, name: str) -> ClusterStanding | None:
    """None when there is no row yet."""
    columns = (CLUSTER.c.state, CLUSTER.c.epoch, CLUSTER.c.instance)
    row = connection.execute(select(*columns).where(CLUSTER.c.name == name)).one_or_none()
    return None if row is None else ClusterStanding(Reach(row.state), row.epoch, row.instance)


def tasks(connection: Connection) -> dict[str, TaskStanding]:
    """Every task, by key."""
    rows = connection.execute(select(TASK.c.key, TASK.c.phase, TASK.c.number, TASK.c.outcome))
    return {
        row.key: TaskStanding(
            row.key,
            row.phase,
            row.number,
            None if row.outcome is None else Outcome.model_validate_json(row.outcome),
        )
        for row in rows
    }


def held(connection: Connection) -> list[str]:
    """Attempts whose claims hold anything, remnants included."""
    return list(connection.scalars(select(CLAIM.c.attempt).where(HELD).order_by(CLAIM.c.attempt)))


def failures(connection: Connection) -> Counter[str]:
    """By task, how many of its attempts count as failures of the user."""
    ended = connection.execute(
        select(CLAIM.c.key, CLAIM.c.ending).where(CLAIM.c.ending.is_not(None))
    )
    read = [(row.key, Ending.model_validate_json(row.ending)) for row in ended]
    return Counter(k for k, ending in read if not ending.success and ending.cause is Cause.FAILURE)


def charged(connection: Connection) -> list[str]:
    """Teams whose quota is charged with anything."""
    rows = connection.execute(select(USAGE)).all()
    return [row.team for row in rows if any(row._mapping[name] for name in _AMOUNTS)]
