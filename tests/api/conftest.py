"""The real application over a real server, worker and ledger; the agent is a tiny one."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from api.app import create_app
from domain.attempt import Ending
from domain.protocol import Offer
from runtime.settings import Settings
from runtime.temporal import connect
from store.schema import migrate
from store.session import open_engine
from tests.activities.agents import TinyAgent, exited
from worker.wiring import wired

PATIENCE_S = 30


@dataclass
class Desk:
    """The application, a client that speaks to it, and what stands behind it."""

    app: FastAPI
    http: httpx.AsyncClient
    settings: Settings
    temporal: Client
    agent: TinyAgent

    async def submit(self, **body: Any) -> httpx.Response:
        """POST /v1/tasks; an id of its own where none is given."""
        given = {"id": f"t-{uuid4().hex}", "command": ["true"], **body}
        return await self.http.post("/v1/tasks", json=given)

    async def ended(self, path: str) -> dict[str, Any]:
        """The task once it is final."""
        answer = await self.http.get(path, params={"wait": "20s"})
        assert answer.status_code == 200, answer.text
        task: dict[str, Any] = answer.json()
        assert task["ended_at"], task
        return task


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask again and again until it holds; an assertion names what never did."""
    deadline = time.monotonic() + PATIENCE_S
    while not await holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        await asyncio.sleep(0.02)


def as_the_command_says(offer: Offer) -> Ending | None:
    """`false` fails, `sleep` runs until it is stopped, everything else succeeds."""
    word = offer.spec.command[0]
    return None if word == "sleep" else exited(1 if word == "false" else 0)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """The application, started; a client without a network."""
    app = create_app(settings)
    # Errors of the application must come out as responses, as they do from a server.
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://drystone", timeout=60) as http,
    ):
        yield app, http


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def desk(
    dev_server_env: WorkflowEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Desk]:
    """One for all tests of a file: each uses names of its own."""
    folder: Path = tmp_path_factory.mktemp("desk")
    address = dev_server_env.client.service_client.config.target_host
    settings = Settings(data_dir=folder, temporal_address=address)
    # As in production, without the sandbox: bursts here are about the API, not about determinism.
    client = await connect(settings)
    engine = open_engine(settings.database_url)
    migrate(engine)
    agent = TinyAgent(client, decide=as_the_command_says)
    async with (
        wired(settings, client, engine) as parts,
        parts.worker,
        agent.serving(),
        serving(settings) as (app, http),
    ):
        made = Desk(app, http, settings, client, agent)
        await _until_a_machine_is_there(made)
        yield made
    engine.dispose()


async def _until_a_machine_is_there(desk: Desk) -> None:
    async def there() -> bool:
        machines = (await desk.http.get("/v1/machines")).json()["items"]
        return any(machine["reachable"] for machine in machines)

    await until(there, "a machine can be given work")
