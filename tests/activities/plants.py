"""A whole worker in this process: real ledger, real rounds, on somebody else's Temporal server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine
from temporalio.client import Client, WorkflowHandle

from domain.attempt import Outcome
from domain.ids import WORKFLOW_QUEUE, task_workflow_id
from domain.supervision import Reach
from domain.task import SubmitTask
from runtime.settings import Settings
from store.overview import cluster
from store.schema import migrate
from store.session import open_engine, reading
from tests.activities.agents import TinyAgent
from tests.workflows.fakes import eventually
from worker.wiring import wired
from workflows.task import TaskWorkflow

Handle = WorkflowHandle[Any, Outcome]


@dataclass
class Plant:
    """A running worker and the ledger it writes."""

    client: Client
    engine: Engine
    settings: Settings

    async def submit(self, **changes: Any) -> Handle:
        """Start a task's workflow as any Temporal client may."""
        given = {"team": "blue", "id": f"t-{uuid4()}", "command": ["/bin/true"], **changes}
        submission = SubmitTask.model_validate(given)
        return await self.client.start_workflow(
            TaskWorkflow.run,
            submission.model_dump(mode="json"),
            id=task_workflow_id(submission.key),
            task_queue=WORKFLOW_QUEUE,
        )

    @asynccontextmanager
    async def agent(self, **how: Any) -> AsyncIterator[TinyAgent]:
        """A tiny agent, from when the ledger knows its machine."""
        async with TinyAgent(self.client, **how).serving() as agent:
            await eventually(lambda: self._knows(agent), f"the machine of {agent.cluster}")
            yield agent

    def _knows(self, agent: TinyAgent) -> bool:
        with reading(self.engine) as connection:
            row = cluster(connection, agent.cluster)
        return row is not None and row.state is Reach.REACHABLE and row.machines > 0


@asynccontextmanager
async def running_plant(client: Client, folder: Path, **settings: Any) -> AsyncIterator[Plant]:
    """One worker on a fresh ledger."""
    chosen = Settings(data_dir=folder, **{"audit_look_again_s": 0.2, **settings})
    engine = open_engine(chosen.database_url)
    migrate(engine)
    try:
        async with wired(chosen, client, engine) as parts, parts.worker:
            yield Plant(client, engine, chosen)
    finally:
        engine.dispose()
