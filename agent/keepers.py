"""Where keepers dial in and where the API reads logs: a small HTTP server, on Unix socket and TCP.

Carries messages; decides nothing about them.
"""

import asyncio
import contextlib
import hmac
import itertools
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

import uvicorn
from fastapi import FastAPI, Query, Response, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, TypeAdapter

from agent.admission import Connected, Disconnected, Said
from agent.state import What
from domain.ids import attempt_id, task_key
from domain.protocol import (
    PROTOCOL_VERSION,
    AgentMessage,
    AttemptEnded,
    AttemptStarted,
    KeeperHello,
    KeeperMessage,
    LogAnswer,
    LogQuestion,
    StartAnswer,
)
from runtime.settings import KEEP_ALIVE_S
from runtime.telemetry import logger

SOCKET_NAME = "agent.sock"
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
OUTBOX_MESSAGES_MAX = 50_000
"""A keeper that takes nothing for so long is cut off; after its next hello it gets what matters."""
HELLO_S_MAX = 10.0
LOG_ANSWER_S_MAX = 5.0
LOG_BYTES_MAX = 1_000_000
PING_S = 20.0
CLOSE_S_MAX = 2
MISFIT, UNWANTED, FOLLOWED = 4400, 4401, 4409
"""WebSocket close codes: cannot be read, wrong token, another connection of the same machine."""

Stream = Literal["stdout", "stderr"]
_ATTEMPT = re.compile(r"[^/#]+/[^/#]+#[1-9][0-9]{0,18}")
_MESSAGES: TypeAdapter[KeeperMessage] = TypeAdapter(KeeperMessage)


class SilentKeeperError(Exception):
    """The keeper that has the attempt does not answer."""


class Connection:
    """One keeper's WebSocket."""

    def __init__(self, number: int, machine: str, websocket: WebSocket) -> None:
        self.number = number
        self.machine = machine
        self.questions: dict[int, asyncio.Future[LogAnswer]] = {}
        self._websocket = websocket
        self._outbox: asyncio.Queue[str | None] = asyncio.Queue(OUTBOX_MESSAGES_MAX)
        self._cut = False

    def send(self, message: BaseModel) -> None:
        """Queue a message."""
        if self._cut:
            return
        try:
            self._outbox.put_nowait(message.model_dump_json())
        except asyncio.QueueFull:
            self._cut = True

    def cut(self) -> None:
        """Another connection of this machine has followed."""
        self._cut = True
        with contextlib.suppress(asyncio.QueueFull):
            self._outbox.put_nowait(None)

    async def write(self) -> None:
        """Send what is queued, until the connection is cut."""
        while not self._cut:
            text = await self._outbox.get()
            if text is None:
                break
            await self._websocket.send_text(text)
        await self._websocket.close(FOLLOWED, "given up")


class KeeperHub:
    """All connected keepers. `tell` takes what they say."""

    def __init__(
        self, tell: Callable[[What], None], machine_of: Callable[[str], str | None], token: str
    ) -> None:
        self._tell = tell
        self._machine_of = machine_of
        self._token = token
        self._connections: dict[str, Connection] = {}
        self._numbers = itertools.count(1)
        self._questions = itertools.count(1)
        self.misfits = 0
        self.simulated = False
        """Machines without connections only pretend to run attempts, so these write nothing."""

    def send(self, machine: str, message: AgentMessage) -> None:
        """See `agent.engine.Keepers`."""
        connection = self._connections.get(machine)
        if connection is not None:
            connection.send(message)

    @property
    def count(self) -> int:
        """How many are connected."""
        return len(self._connections)

    async def converse(self, websocket: WebSocket) -> None:
        """One connection, from its hello to its end."""
        await websocket.accept()
        hello = await self._hello(websocket)
        if hello is None:
            return
        machine = hello.machine.name
        connection = Connection(next(self._numbers), machine, websocket)
        older = self._connections.get(machine)
        if older is not None:
            older.cut()
        self._connections[machine] = connection
        logger().info("keeper connected", machine=machine, live=len(hello.live))
        self._tell(Connected(hello, connection.number))
        writing = asyncio.create_task(connection.write())
        try:
            await self._read(websocket, connection)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._left(connection)

    async def _hello(self, websocket: WebSocket) -> KeeperHello | None:
        try:
            async with asyncio.timeout(HELLO_S_MAX):
                hello = self._read_message(await websocket.receive_text())
        except (TimeoutError, WebSocketDisconnect):
            return None
        if not isinstance(hello, KeeperHello) or hello.v != PROTOCOL_VERSION:
            await websocket.close(MISFIT, f"the first message is a hello of v {PROTOCOL_VERSION}")
            return None
        if self._token and not hmac.compare_digest(hello.token.encode(), self._token.encode()):
            logger().warning("keeper refused: wrong token", machine=hello.machine.name)
            await websocket.close(UNWANTED, "wrong token")
            return None
        return hello

    async def _read(self, websocket: WebSocket, connection: Connection) -> None:
        while True:
            try:
                text = await websocket.receive_text()
            except (WebSocketDisconnect, RuntimeError):
                return  # RuntimeError: our own side closed it.
            match self._read_message(text):
                case None | KeeperHello():
                    continue
                case LogAnswer() as answer:
                    waiting = connection.questions.pop(answer.question, None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(answer)
                case message:
                    self._tell(Said(connection.machine, connection.number, message))

    def _read_message(self, text: str) -> KeeperMessage | None:
        try:
            message = _MESSAGES.validate_json(text)
            _check_attempts(message)
        except ValueError as error:  # ValidationError is one.
            self.misfits += 1
            logger().warning("misfit", count=self.misfits, error=str(error)[:500])
            return None
        return message

    def _left(self, connection: Connection) -> None:
        if self._connections.get(connection.machine) is connection:
            del self._connections[connection.machine]
        for waiting in connection.questions.values():
            waiting.cancel()
        logger().info("keeper gone", machine=connection.machine)
        self._tell(Disconnected(connection.machine, connection.number))

    # --- logs

    async def read_log(self, attempt: str, stream: Stream, offset: int, limit: int) -> LogAnswer:
        """A chunk of an attempt's output, from its keeper; SilentKeeperError when that is away."""
        question = next(self._questions)
        machine = self._machine_of(attempt)
        if machine is None:
            return LogAnswer(question=question, known=False)
        connection = self._connections.get(machine)
        if connection is None and self.simulated:
            return LogAnswer(question=question, known=True, ended=True)
        if connection is None:
            raise SilentKeeperError(f"the keeper of {machine} is not connected")
        waiting: asyncio.Future[LogAnswer] = asyncio.get_running_loop().create_future()
        connection.questions[question] = waiting
        connection.send(
            LogQuestion(
                question=question, attempt=attempt, stream=stream, offset=offset, limit=limit
            )
        )
        try:
            async with asyncio.timeout(LOG_ANSWER_S_MAX):
                return await waiting
        except (TimeoutError, asyncio.CancelledError) as error:
            connection.questions.pop(question, None)
            if isinstance(error, asyncio.CancelledError) and not waiting.cancelled():
                raise
            raise SilentKeeperError(f"the keeper of {machine} does not answer") from error


def _check_attempts(message: KeeperMessage) -> None:
    """ValueError when it names something that is no attempt: it must not get any further."""
    match message:
        case KeeperHello(live=live):
            named = live
        case AttemptStarted(attempt=attempt) | AttemptEnded(attempt=attempt):
            named = (attempt,)
        case _:
            named = ()
    wrong = next((name for name in named if not _ATTEMPT.fullmatch(name)), None)
    if wrong is not None:
        raise ValueError(f"{wrong[:100]!r} is no attempt: <team>/<id>#<number>")


def create_app(
    hub: KeeperHub,
    facts: Callable[[], dict[str, object]],
    start_of: Callable[[str], datetime | None],
) -> FastAPI:
    """The agent's HTTP face. `start_of`: when this attempt started, by its keeper's stamp."""
    app = FastAPI(title="Drystone agent", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_api_websocket_route("/v1/keeper", hub.converse)

    @app.get("/healthz")
    async def healthz() -> dict[str, object]:
        return facts()

    @app.get("/v1/starts")
    async def start(attempt: str) -> StartAnswer:
        return StartAnswer(started_at=start_of(attempt))

    async def answer(attempt: str, stream: Stream, offset: int, limit: int) -> Response:
        try:
            read = await hub.read_log(attempt, stream, offset, limit)
        except SilentKeeperError as error:
            return Response(str(error), status_code=503, headers={"Retry-After": "2"})
        return Response(read.model_dump_json(), media_type="application/json")

    @app.get("/v1/logs")
    async def log_by_id(
        attempt: str,
        stream: Stream = "stdout",
        offset: int = Query(0, ge=0),
        limit: int = Query(65_536, ge=1, le=LOG_BYTES_MAX),
    ) -> Response:
        return await answer(attempt, stream, offset, limit)

    @app.get("/v1/attempts/{team}/{task}/{number}/logs")
    async def log(
        team: str,
        task: str,
        number: int,
        stream: Stream = "stdout",
        offset: int = Query(0, ge=0),
        limit: int = Query(65_536, ge=1, le=LOG_BYTES_MAX),
    ) -> Response:
        return await answer(attempt_id(task_key(team, task), number), stream, offset, limit)

    return app


class _Server(uvicorn.Server):
    """Signals are the agent's business, not its server's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(app: FastAPI) -> uvicorn.Server:
    """Cheap: no access log, no compression, seldom pings."""
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # Our own lines say it.
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="websockets-sansio",
        lifespan="off",
        access_log=False,
        log_config=None,
        ws_max_size=MESSAGE_BYTES_MAX,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=CLOSE_S_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    return _Server(config)


def unix_socket(path: Path) -> socket.socket:
    """For this user only. The folder's lock is held, so a socket that is there is left over."""
    unborn = path.with_suffix(".new")
    unborn.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listening.bind(str(unborn))
    finally:
        os.umask(before)
    listening.listen(1_024)
    unborn.rename(path)  # Whoever sees it can connect.
    return listening


def tcp_socket(address: str) -> socket.socket:
    """`name:port`; port 0 takes any that is free."""
    name, _, port = address.rpartition(":")
    return socket.create_server((name, int(port)), backlog=1_024)
