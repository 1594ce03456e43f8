"""One worker per test, on a fresh ledger and a shared server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from runtime.temporal import plugin
from tests.activities.plants import Plant, running_plant


@pytest_asyncio.fixture(loop_scope="session")
async def plant(dev_server_env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Plant]:
    """Everything but agents; those are tiny ones. Workflows run as in production, unsandboxed."""
    address = dev_server_env.client.service_client.config.target_host
    client = await Client.connect(address, plugins=[plugin()])
    async with running_plant(client, tmp_path) as running:
        yield running
