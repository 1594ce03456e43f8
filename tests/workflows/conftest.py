"""A worker with recording ports, in the strict sandbox, on either server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from domain.attempt import Outcome
from domain.ids import task_workflow_id
from domain.protocol import TaskEnvelope, TaskMessage
from domain.task import SubmitTask
from runtime.temporal import SEARCH_ATTRIBUTES, plugin, temporal_binary
from tests.workflows.fakes import FakeAudits, FakeClusterLedger, FakeLedger, FakeRounds, eventually
from workflows.audit import AuditWorkflow
from workflows.cluster import ClusterWorkflow
from workflows.placement import PlacementWorkflow
from workflows.task import TaskWorkflow

WORKFLOWS = [TaskWorkflow, PlacementWorkflow, ClusterWorkflow, AuditWorkflow]
ROLLING_EVENTS = 30
TaskHandle = WorkflowHandle[TaskWorkflow, Outcome]


@dataclass
class Stage:
    """A client, its worker's queue, and the ports that the workflows see."""

    client: Client
    env: WorkflowEnvironment
    queue: str = field(default_factory=lambda: f"q-{uuid4()}")
    ledger: FakeLedger = field(default_factory=FakeLedger)
    rounds: FakeRounds = field(default_factory=FakeRounds)
    clusters: FakeClusterLedger = field(default_factory=FakeClusterLedger)
    audits: FakeAudits = field(default_factory=FakeAudits)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        """Serves as long as the block lasts."""
        worker = Worker(
            self.client,
            task_queue=self.queue,
            workflows=WORKFLOWS,
            activities=[
                self.ledger.ledger,
                self.rounds.place_round,
                self.rounds.close_gone,
                self.clusters.cluster_ledger,
                self.clusters.page_loss,
                self.audits.audit_ledger,
            ],
        )
        async with worker:
            yield

    async def submit(self, **changes: object) -> TaskHandle:
        """Start a task's workflow the way the API does."""
        given = {"team": "blue", "id": f"t-{uuid4()}", "command": ["/bin/true"], **changes}
        submission = SubmitTask.model_validate(given)
        return await self.client.start_workflow(
            TaskWorkflow.run,
            submission.model_dump(mode="json"),
            id=task_workflow_id(submission.key),
            task_queue=self.queue,
        )

    async def asked(self, questions: int) -> None:
        """The ledger has been asked so often, counting what a test has looked at."""
        await eventually(
            lambda: self.ledger.questions >= questions, f"{questions} questions to the ledger"
        )

    async def report(self, handle: TaskHandle, message: TaskMessage) -> None:
        """A report as the agent sends it."""
        await handle.signal(TaskWorkflow.report, TaskEnvelope(message=message))


@pytest.fixture
def skipping(time_skipping_env: WorkflowEnvironment) -> Stage:
    """On the time-skipping server."""
    return Stage(time_skipping_env.client, time_skipping_env)


@pytest.fixture
def real(dev_server_env: WorkflowEnvironment) -> Stage:
    """On the real server."""
    return Stage(dev_server_env.client, dev_server_env)


@pytest_asyncio.fixture(loop_scope="session")
async def quick(dev_server_env: WorkflowEnvironment) -> Stage:
    """On the real server and without the sandbox, whose imports cost more than such a test."""
    address = dev_server_env.client.service_client.config.target_host
    return Stage(await Client.connect(address, plugins=[plugin()]), dev_server_env)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rolling_env() -> AsyncIterator[WorkflowEnvironment]:
    """A real server that suggests a new run after a few events."""
    env = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(temporal_binary()),
        dev_server_log_level="error",
        dev_server_extra_args=[
            "--dynamic-config-value",
            f"limit.historyCount.suggestContinueAsNew={ROLLING_EVENTS}",
        ],
        search_attributes=SEARCH_ATTRIBUTES,
        plugins=[plugin(strict=True)],
    )
    yield env
    await env.shutdown()


@pytest.fixture
def rolling(rolling_env: WorkflowEnvironment) -> Stage:
    """On a server that wants many short runs."""
    return Stage(rolling_env.client, rolling_env)
