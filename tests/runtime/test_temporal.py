"""One plugin for all: pydantic payloads, our search attributes, and a sandbox that sees us."""

import asyncio
import socket
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import BaseModel
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from runtime.settings import Settings
from runtime.temporal import (
    SEARCH_ATTRIBUTES,
    TEAM,
    connect,
    dev_server_command,
    register_search_attributes,
    temporal_binary,
    time_skipping_binary,
)


class Parcel(BaseModel, frozen=True):
    """A payload with a type that plain JSON would lose."""

    at: datetime


@workflow.defn
class Echo:
    """Gives back what it got."""

    @workflow.run
    async def run(self, parcel: Parcel) -> Parcel:
        assert isinstance(parcel.at, datetime)
        return parcel


@workflow.defn(failure_exception_types=[Exception])
class ReadsTheClock:
    """What no workflow may do."""

    @workflow.run
    async def run(self) -> str:
        return str(datetime.now(UTC))


def test_the_binaries_come_with_the_packages() -> None:
    assert temporal_binary().name == "temporal"
    assert time_skipping_binary().name == "temporal-test-server"


def test_the_server_forgets_nothing_when_it_has_a_file() -> None:
    words = dev_server_command(db_path=Path("t.db"), port=1, ui_port=2)
    assert "--db-filename t.db" in " ".join(words)
    assert words.count("--sqlite-pragma") == 2
    assert words.count("--search-attribute") == len(SEARCH_ATTRIBUTES)
    assert "history.transferProcessorMaxPollRPS=2000" in words
    assert "--headless" not in words
    assert "--headless" in dev_server_command(db_path=None, port=1, ui_port=None)


async def test_pydantic_payloads_and_search_attributes(
    dev_server_env: WorkflowEnvironment,
) -> None:
    parcel = Parcel(at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    async with Worker(dev_server_env.client, task_queue="echo", workflows=[Echo]):
        echoed = await dev_server_env.client.execute_workflow(
            Echo.run,
            parcel,
            id=f"echo/{uuid.uuid4()}",
            task_queue="echo",
            search_attributes=TypedSearchAttributes([SearchAttributePair(TEAM, "blue")]),
        )
    assert echoed == parcel


async def test_registering_search_attributes_twice_is_no_error(
    dev_server_env: WorkflowEnvironment, time_skipping_env: WorkflowEnvironment
) -> None:
    await register_search_attributes(dev_server_env.client)
    await register_search_attributes(time_skipping_env.client)


async def test_the_strict_sandbox_stops_a_look_at_the_clock(
    time_skipping_env: WorkflowEnvironment,
) -> None:
    client = time_skipping_env.client
    async with Worker(client, task_queue="clock", workflows=[ReadsTheClock]):
        with pytest.raises(WorkflowFailureError) as failure:
            await client.execute_workflow(
                ReadsTheClock.run, id=f"clock/{uuid.uuid4()}", task_queue="clock"
            )
    assert "datetime.datetime.now" in str(failure.value.cause)


async def test_the_command_line_starts_a_server_that_connect_reaches(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = dev_server_command(db_path=tmp_path / "temporal.db", port=port, ui_port=None)
    server = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        client = await _connected(Settings(temporal_address=f"127.0.0.1:{port}"))
        await register_search_attributes(client)
        count = await client.count_workflows("DrystoneTeam = 'blue'")
        assert count.count == 0
    finally:
        server.terminate()
        await server.wait()


async def _connected(settings: Settings) -> Client:
    for _ in range(100):
        try:
            return await connect(settings)
        except RuntimeError:
            await asyncio.sleep(0.1)
    raise TimeoutError("the server did not come up")
