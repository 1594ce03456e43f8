"""What a route is given: settings, ledger, Temporal, metrics. Made once by the application."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Path, Request

from api.backlog import Backlog
from api.classes import FleetClasses
from api.closing import Closing
from api.gateway import Gateway
from api.ledger import LedgerReader
from api.logs import AgentLogs
from api.metrics import Metrics
from domain.ids import Name, TaskId, TaskKey, TeamName, task_key
from runtime.settings import Settings


@dataclass(frozen=True)
class Parts:
    """Everything the routes work with."""

    settings: Settings
    ledger: LedgerReader
    gateway: Gateway
    classes: FleetClasses
    backlog: Backlog
    logs: AgentLogs
    metrics: Metrics
    closing: Closing


async def parts_of(request: Request) -> Parts:
    """The parts of the application that serves this request."""
    parts: Parts = request.app.state.parts
    return parts


async def key_of(team: Annotated[TeamName, Path()], task: Annotated[TaskId, Path()]) -> TaskKey:
    """The key that the path names, checked before anything is asked."""
    return task_key(team, task)


def now() -> datetime:
    """The instant of a request."""
    return datetime.now(UTC)


PartsOf = Annotated[Parts, Depends(parts_of)]
KeyOf = Annotated[TaskKey, Depends(key_of)]
ClusterName = Annotated[Name, Path()]
MachineName = Annotated[Name, Path()]
