"""The agent's door: fake keepers on a real Unix socket, and the reading of logs."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import unix_connect

from agent.admission import Connected, Disconnected, Said
from agent.keepers import (
    FOLLOWED,
    MISFIT,
    UNWANTED,
    KeeperHub,
    create_app,
    server,
    tcp_socket,
    unix_socket,
)
from agent.state import What
from api.logs import AgentLogs
from domain.attempt import StopCause
from domain.protocol import LeaseQuestion, StartAnswer, StopAttempt
from tests.agent.bench import WALL
from tests.agent.fake_keeper import FakeKeeper, until

ATTEMPT = "blue/t1#1"


class Door:
    """A hub behind its real server."""

    def __init__(self, folder: Path, token: str) -> None:
        self.events: list[What] = []
        self.machine: str | None = "m1"
        self.hub = KeeperHub(self.events.append, lambda _attempt: self.machine, token)
        self.path = folder / "agent.sock"
        self.tcp = tcp_socket("127.0.0.1:0")
        self.server = server(create_app(self.hub, lambda: {"cluster": "c1"}, {ATTEMPT: WALL}.get))
        sockets = [unix_socket(self.path), self.tcp]
        self.serving = asyncio.create_task(self.server.serve(sockets=sockets))

    @property
    def url(self) -> str:
        name, port = self.tcp.getsockname()[:2]
        return f"http://{name}:{port}"

    async def close(self) -> None:
        self.server.should_exit = True
        await self.serving

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as client:
            return await client.get(path)


@pytest_asyncio.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    opened = Door(tmp_path, token="secret")
    await until(lambda: opened.server.started, "the server listens")
    yield opened
    await opened.close()


def a_keeper(**changes: str) -> FakeKeeper:
    return FakeKeeper(**{"token": "secret", **changes})


async def test_the_api_lets_go_of_an_idle_connection_before_its_agent_does(door: Door) -> None:
    let_go_s = httpx.Limits().keepalive_expiry
    assert let_go_s is not None
    assert door.server.config.timeout_keep_alive > let_go_s


async def test_when_an_attempt_started_is_told_once_it_is_known(door: Door) -> None:
    known = await door.get("/v1/starts?attempt=blue/t1%231")
    assert StartAnswer.model_validate_json(known.content).started_at == WALL
    assert (await door.get("/v1/starts?attempt=blue/t2%231")).json() == {"started_at": None}
    logs = AgentLogs()
    assert await logs.started(door.url, ATTEMPT) == WALL
    assert await logs.started(door.url, "blue/t2#1") is None
    assert await logs.started(f"{door.url}/an/older/agent", ATTEMPT) is None
    assert await logs.started("http://127.0.0.1:1", ATTEMPT) is None
    await logs.close()


async def test_a_keeper_says_hello_and_both_sides_are_heard(door: Door) -> None:
    keeper = a_keeper()
    await keeper.connect(door.path)
    await until(lambda: len(door.events) == 2, "hello and question")
    hello, said = door.events
    assert isinstance(hello, Connected)
    assert hello.hello.machine.name == "m1"
    assert isinstance(said, Said)
    assert isinstance(said.message, LeaseQuestion)
    assert said.connection == hello.connection
    door.hub.send("m1", StopAttempt(attempt=ATTEMPT, cause=StopCause.DRAIN, grace_s=3))
    await until(lambda: keeper.kinds() == ["stop"], "the stop arrives")
    await keeper.hang_up()
    await until(lambda: isinstance(door.events[-1], Disconnected), "the end is noticed")


async def test_a_keeper_with_the_wrong_token_is_turned_away(door: Door) -> None:
    keeper = a_keeper(token="guessed")
    await keeper.connect(door.path)
    await until(lambda: keeper.close_code == UNWANTED, "turned away")
    assert door.events == []


async def test_a_first_message_that_is_no_hello_ends_the_connection(door: Door) -> None:
    async with unix_connect(str(door.path), "ws://agent/v1/keeper") as socket:
        await socket.send('{"kind": "lease_question", "question": 1}')
        await socket.wait_closed()
        assert socket.close_code == MISFIT


async def test_a_message_that_does_not_fit_is_counted_and_the_next_one_read(door: Door) -> None:
    keeper = a_keeper()
    await keeper.connect(door.path)
    socket = keeper._socket
    assert socket is not None
    await socket.send('{"kind": "from the future"}')
    await keeper.ask()
    await until(lambda: len(door.events) == 3, "the second question arrives")
    assert door.hub.misfits == 1


async def test_a_hello_that_names_what_is_no_attempt_goes_no_further(door: Door) -> None:
    keeper = a_keeper()
    keeper.live.add("no attempt")
    await keeper.connect(door.path)
    await until(lambda: keeper.close_code == MISFIT, "turned away")
    assert (door.events, door.hub.misfits) == ([], 1)


async def test_a_second_connection_of_a_machine_follows_the_first(door: Door) -> None:
    first, second = a_keeper(), a_keeper(instance="k2")
    await first.connect(door.path)
    await until(lambda: door.hub.count == 1, "the first is there")
    await second.connect(door.path)
    await until(lambda: first.close_code == FOLLOWED, "the first is cut")
    door.hub.send("m1", StopAttempt(attempt=ATTEMPT, cause=StopCause.DRAIN, grace_s=3))
    await until(lambda: second.kinds() == ["stop"], "the second is the one that is spoken to")
    assert door.hub.count == 1


async def test_the_socket_is_for_this_user_only(door: Door) -> None:
    assert stat.S_IMODE(os.stat(door.path).st_mode) == 0o600


@pytest.mark.parametrize(
    "path",
    ["/v1/attempts/blue/t1/1/logs?stream=stderr&offset=5", "/v1/logs?attempt=blue%2Ft1%231"],
)
async def test_output_is_read_through_the_keeper(door: Door, path: str) -> None:
    keeper = a_keeper()
    keeper.live.add(ATTEMPT)
    await keeper.connect(door.path)
    await until(lambda: door.hub.count == 1, "connected")
    answer = await door.get(path)
    assert answer.status_code == 200
    assert json.loads(answer.content) == {
        "kind": "log_answer",
        "question": 1,
        "known": True,
        "first": 0,
        "data": "aGVsbG8=",
        "ended": False,
    }


async def test_output_of_an_attempt_nobody_knows_is_unknown(door: Door) -> None:
    door.machine = None
    assert (await door.get("/v1/logs?attempt=blue/x%231")).json()["known"] is False


async def test_a_silent_keeper_is_said_to_be_silent(door: Door) -> None:
    answer = await door.get("/v1/logs?attempt=blue/t1%231")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")


async def test_a_simulated_attempt_has_written_nothing(door: Door) -> None:
    door.hub.simulated = True
    answer = (await door.get("/v1/logs?attempt=blue/t1%231")).json()
    assert (answer["known"], answer["data"], answer["ended"]) == (True, "", True)


async def test_a_question_that_was_open_when_its_keeper_left_is_answered(door: Door) -> None:
    async with unix_connect(str(door.path), "ws://agent/v1/keeper") as socket:
        keeper = a_keeper()
        keeper._socket = socket
        await keeper.say(_hello_of(keeper))
        await until(lambda: door.hub.count == 1, "connected")
        asked = asyncio.create_task(door.get("/v1/logs?attempt=blue/t1%231"))
        await socket.recv()
    assert (await asked).status_code == 503


async def test_the_agent_says_how_it_is(door: Door) -> None:
    assert (await door.get("/healthz")).json() == {"cluster": "c1"}


def _hello_of(keeper: FakeKeeper):
    from domain.protocol import KeeperHello
    from tests.agent.bench import a_machine

    machine = a_machine(keeper.name, keeper.instance)
    return KeeperHello(machine=machine, epoch=0, live=(), token=keeper.token)
