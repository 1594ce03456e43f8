"""The keeper's connection to its agent: one WebSocket, dialled again and again until it is told to
stop. Knows messages as texts and when to ask for the lease; decides nothing about attempts.
"""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from pydantic import BaseModel, TypeAdapter, ValidationError
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from domain.protocol import AgentMessage
from runtime.telemetry import logger

PATH = "/v1/keeper"
BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 5.0
STEADY_S = 5.0
"""A connection that lasted so long was a good one: the next dial comes at once."""
OPEN_S_MAX = 10.0
PING_S = 10.0
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
OUTBOX_MESSAGES_MAX = 50_000
"""More than that unsent: the connection is given up, and everything that counts is sent anew."""

_MESSAGES: TypeAdapter[AgentMessage] = TypeAdapter(AgentMessage)


class Side(Protocol):
    """What the link asks of the keeper."""

    def hello(self) -> BaseModel:
        """The first message of a connection."""

    def connected(self) -> None:
        """The hello is on its way: send what the agent may have missed."""

    def received(self, message: AgentMessage) -> None:
        """A message from the agent."""

    def ask(self) -> float:
        """Ask for the lease; the answer is after how many seconds to ask again."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the agent listens: a Unix socket, or a URL."""

    unix_path: str | None
    url: str


def read_address(text: str) -> Address:
    """`unix:/path/agent.sock`, `http://host:port` or `https://host:port`."""
    if text.startswith("unix:"):
        return Address(text.removeprefix("unix:"), f"ws://agent{PATH}")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(
            f"{text!r} is no agent address: unix:/PATH, http://NAME:PORT or https://..."
        )
    scheme = "wss" if parts.scheme == "https" else "ws"
    return Address(None, f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}{PATH}")


class Link:
    """Dials, says hello, and passes messages both ways for as long as `run` runs."""

    def __init__(self, address: Address, side: Side, chance: random.Random) -> None:
        self._address = address
        self._side = side
        self._chance = chance
        self._outbox: asyncio.Queue[str] | None = None
        self.misfits = 0
        """Messages that could not be read."""

    def send(self, message: BaseModel) -> None:
        """Queue a message; without a connection it is dropped, since `connected` sends it anew."""
        if self._outbox is None:
            return
        try:
            self._outbox.put_nowait(message.model_dump_json())
        except asyncio.QueueFull:
            self._outbox = None

    async def run(self) -> None:
        """Until cancelled."""
        backoff_s = BACKOFF_S_MIN
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with self._dial() as socket:
                    logger().info("connected", agent=self._address.url)
                    connected_s = loop.time()
                    try:
                        await self._converse(socket)
                    finally:
                        # One that ends soon may be refused each time: do not hurry then.
                        if loop.time() - connected_s > STEADY_S:
                            backoff_s = BACKOFF_S_MIN
            except (OSError, TimeoutError, WebSocketException, InvalidHandshake) as error:
                logger().info("not connected", error=str(error) or type(error).__name__)
            except InvalidURI as error:
                raise ValueError(str(error)) from error
            await asyncio.sleep(backoff_s * self._chance.uniform(0.5, 1.0))
            backoff_s = min(BACKOFF_S_MAX, backoff_s * 2)

    def _dial(self) -> connect:
        if self._address.unix_path is not None:
            return unix_connect(
                self._address.unix_path,
                self._address.url,
                compression=None,
                open_timeout=OPEN_S_MAX,
                ping_interval=PING_S,
                ping_timeout=PING_S,
                max_size=MESSAGE_BYTES_MAX,
            )
        return connect(
            self._address.url,
            compression=None,
            open_timeout=OPEN_S_MAX,
            ping_interval=PING_S,
            ping_timeout=PING_S,
            max_size=MESSAGE_BYTES_MAX,
            proxy=None,
        )

    async def _converse(self, socket: ClientConnection) -> None:
        """Until the connection ends, or the agent does not take what we send."""
        outbox: asyncio.Queue[str] = asyncio.Queue(OUTBOX_MESSAGES_MAX)
        self._outbox = outbox
        self.send(self._side.hello())
        self._side.connected()
        parts = (self._read(socket), self._write(socket, outbox), self._ask())
        try:
            await _first_of(*parts)
        finally:
            self._outbox = None

    async def _read(self, socket: ClientConnection) -> None:
        async for text in socket:
            try:
                message = _MESSAGES.validate_json(text)
            except ValidationError as error:
                self.misfits += 1
                logger().warning("misfit", count=self.misfits, error=str(error)[:500])
                continue
            self._side.received(message)

    async def _write(self, socket: ClientConnection, outbox: asyncio.Queue[str]) -> None:
        while self._outbox is outbox:
            await socket.send(await outbox.get())

    async def _ask(self) -> None:
        while True:
            pause_s = self._side.ask()
            await asyncio.sleep(pause_s)


async def _first_of(*parts: Awaitable[None]) -> None:
    """Run them side by side; when one ends or fails, end the others, and raise what failed."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
