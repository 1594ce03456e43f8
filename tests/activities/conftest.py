"""One worker per test, on a fresh ledger and a shared server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from temporalio.testing import WorkflowEnvironment

from tests.activities.plants import Plant, running_plant


@pytest_asyncio.fixture(loop_scope="session")
async def plant(dev_server_env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Plant]:
    """Everything but agents; those are tiny ones."""
    async with running_plant(dev_server_env.client, tmp_path) as running:
        yield running
