"""A whole worker in this process: real server, real ledger, real rounds; agents are tiny ones."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest_asyncio
from sqlalchemy import Engine
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from domain.attempt import Outcome
from domain.ids import WORKFLOW_QUEUE, task_workflow_id
from domain.task import SubmitTask
from runtime.settings import Settings
from store.schema import migrate
from store.session import open_engine
from worker.wiring import wired
from workflows.task import TaskWorkflow


@dataclass
class Plant:
    """A running worker and the ledger it writes."""

    client: Client
    engine: Engine
    settings: Settings

    async def submit(self, **changes: Any) -> WorkflowHandle[Any, Outcome]:
        """Start a task's workflow as any Temporal client may."""
        given = {"team": "blue", "id": f"t-{uuid4()}", "command": ["/bin/true"], **changes}
        submission = SubmitTask.model_validate(given)
        return await self.client.start_workflow(
            TaskWorkflow.run,
            submission.model_dump(mode="json"),
            id=task_workflow_id(submission.key),
            task_queue=WORKFLOW_QUEUE,
        )


@pytest_asyncio.fixture(loop_scope="session")
async def plant(dev_server_env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Plant]:
    """One worker per test, on a fresh ledger."""
    settings = Settings(data_dir=tmp_path)
    engine = open_engine(settings.database_url)
    migrate(engine)
    async with wired(settings, dev_server_env.client, engine) as parts, parts.worker:
        yield Plant(dev_server_env.client, engine, settings)
    engine.dispose()
