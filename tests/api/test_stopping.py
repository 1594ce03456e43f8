"""An API that is told to stop: waits answer now, streams end, nothing becomes a server error."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest_asyncio
from starlette.types import Message

from api.__main__ import server_config
from api.closing import AnswerWhenCancelled, Closing
from tests.api.conftest import Desk, until
from tests.support.fleet import free_port

STOP_S_MAX = 4.0
"""Of the five seconds after which the server would cancel what still waits."""


@pytest_asyncio.fixture(loop_scope="session")
async def process(desk: Desk) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """`drystone api` beside the desk, on the same ledger and server."""
    port = free_port()
    environment = {**desk.settings.environment(), "DRYSTONE_API_PORT": str(port)}
    url = f"http://127.0.0.1:{port}"
    made = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "api"), env=environment, cwd=Path(__file__).parents[2]
    )

    async def answers() -> bool:
        try:
            async with httpx.AsyncClient(base_url=url) as http:
                return (await http.get("/healthz")).is_success
        except httpx.TransportError:
            return False

    await until(answers, "the API answers")
    yield made, url
    if made.returncode is None:
        made.kill()
        await made.wait()


async def test_clients_let_go_of_an_idle_connection_before_the_api_does(desk: Desk) -> None:
    let_go_s = httpx.Limits().keepalive_expiry
    assert let_go_s is not None
    assert server_config(desk.settings, Closing()).timeout_keep_alive > let_go_s


async def test_a_planned_stop_answers_what_waits_and_is_soon_over(
    desk: Desk, process: tuple[asyncio.subprocess.Process, str]
) -> None:
    server, url = process
    name = f"t-{uuid4().hex}"
    await desk.submit(id=name, command=["sleep", "9"])
    path = f"/v1/tasks/default/{name}"
    framed = {"Accept": "application/x-ndjson"}
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        waiting = asyncio.create_task(http.get(f"{path}?wait=50s"))
        following = asyncio.create_task(http.get(f"{path}/logs?follow=true", headers=framed))

        async def both_wait() -> bool:
            text = (await http.get("/metrics")).text
            # A stream is counted as soon as it has begun; the wait began before it.
            return 'route="/v1/tasks/{team}/{task}/logs"' in text

        await until(both_wait, "both wait")
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        waited, followed = await waiting, await following
        assert await server.wait() == 0
        assert time.monotonic() - began < STOP_S_MAX
    assert waited.status_code == 200, waited.text
    assert waited.json()["phase"] in ("PENDING", "OFFERED", "RUNNING")
    last = json.loads(followed.text.splitlines()[-1])
    assert "stopping" in last["cut"]
    await desk.http.post(f"{path}/cancel")
    await desk.ended(path)


async def test_what_the_server_gives_up_is_told_to_come_again() -> None:
    sent: list[Message] = []

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    async def keep(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    closing = Closing()
    closing.begin()
    application = AnswerWhenCancelled(never, closing, retry_after_s=2)
    answering = asyncio.ensure_future(application({"type": "http"}, receive, keep))
    await asyncio.sleep(0)
    answering.cancel()
    await answering
    assert sent[0]["status"] == 503
    assert dict(sent[0]["headers"])[b"retry-after"] == b"2"
    assert json.loads(sent[1]["body"])["code"] == "unavailable"
