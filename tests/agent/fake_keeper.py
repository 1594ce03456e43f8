"""A keeper with no processes, on a real socket: it starts a number once and keeps its endings."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed

from domain.attempt import Ending, EndKind, StopCause
from domain.protocol import (
    AgentMessage,
    AttemptEnded,
    AttemptStarted,
    Forget,
    KeeperGrant,
    KeeperHello,
    KeeperMessage,
    LeaseAnswer,
    LeaseQuestion,
    LogAnswer,
    LogQuestion,
    StartAttempt,
    StopAttempt,
)
from tests.agent.bench import a_machine

WAIT_S_MAX = 30.0
_MESSAGES: TypeAdapter[AgentMessage] = TypeAdapter(AgentMessage)


async def until(holds: Callable[[], bool], what: str, seconds: float = WAIT_S_MAX) -> None:
    """Ask again and again until it holds."""

    async def asked() -> bool:
        return holds()

    await until_true(asked, what, seconds)


async def until_true(
    holds: Callable[[], Awaitable[bool]], what: str, seconds: float = WAIT_S_MAX
) -> None:
    """The same for a question that must be awaited."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not await holds():
        assert loop.time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


class FakeKeeper:
    """`connect` and `hang_up` as often as wanted; what it knows stays."""

    def __init__(self, name: str = "m1", instance: str = "k1", token: str = "") -> None:
        self.name, self.instance, self.token = name, instance, token
        self.live: set[str] = set()
        self.over: dict[str, AttemptEnded] = {}
        self.forgotten: set[str] = set()
        self.starts: dict[str, int] = defaultdict(int)
        self.received: list[AgentMessage] = []
        self.granted = False
        self.close_code: int | None = None
        self._socket: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._questions = 0

    async def connect(self, path: Path) -> None:
        self.granted = False
        self._socket = await unix_connect(str(path), "ws://agent/v1/keeper", compression=None)
        await self.say(
            KeeperHello(
                machine=a_machine(self.name, self.instance),
                epoch=0,
                live=tuple(self.live),
                token=self.token,
            )
        )
        for ended in list(self.over.values()):
            await self.say(ended)
        self._reading = asyncio.create_task(self._read(self._socket))
        with contextlib.suppress(ConnectionClosed):  # It may have been turned away already.
            await self.ask()

    async def hang_up(self) -> None:
        assert self._socket is not None
        assert self._reading is not None
        await self._socket.close()
        await self._reading
        self._socket = None

    async def ask(self) -> None:
        self._questions += 1
        await self.say(LeaseQuestion(question=self._questions, epoch=1 if self.granted else 0))

    async def end(self, attempt: str, ending: Ending | None = None) -> None:
        """It exits; said at once when connected, else at the next connection."""
        self.live.discard(attempt)
        ending = ending or Ending(kind=EndKind.EXITED, exit_code=0)
        at = datetime.now(UTC)
        self.over[attempt] = AttemptEnded(attempt=attempt, ending=ending, started_at=at, at=at)
        if self._socket is not None:
            await self.say(self.over[attempt])

    async def say(self, message: KeeperMessage) -> None:
        assert self._socket is not None
        await self._socket.send(message.model_dump_json())

    def kinds(self) -> list[str]:
        return [message.kind for message in self.received]

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for text in socket:
                message = _MESSAGES.validate_json(text)
                self.received.append(message)
                await self._do(message)
        except ConnectionClosed:
            pass
        self.close_code = socket.close_code

    async def _do(self, message: AgentMessage) -> None:
        match message:
            case KeeperGrant():
                self.granted = True
            case LeaseAnswer():
                pass
            case StartAttempt(attempt=attempt):
                if attempt in self.over:
                    await self.say(self.over[attempt])
                elif attempt not in self.live | self.forgotten:
                    self.starts[attempt] += 1
                    self.live.add(attempt)
                    await self.say(AttemptStarted(attempt=attempt, at=datetime.now(UTC)))
            case StopAttempt(attempt=attempt, cause=cause):
                await self.end(attempt, _stopped(cause))
            case Forget(attempts=attempts):
                for attempt in attempts:
                    self.over.pop(attempt, None)
                    self.forgotten.add(attempt)
            case LogQuestion(question=question, attempt=attempt):
                known = attempt in self.live
                await self.say(LogAnswer(question=question, known=known, data="aGVsbG8="))


def _stopped(cause: StopCause) -> Ending:
    return Ending(kind=EndKind.STOPPED, stop_cause=cause)
