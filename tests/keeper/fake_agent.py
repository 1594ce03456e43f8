"""The agent's end of a keeper's WebSocket, for tests: records what comes, grants what is asked."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, TypeAdapter
from websockets.asyncio.server import ServerConnection, serve, unix_serve
from websockets.exceptions import ConnectionClosed

from domain.attempt import StopCause
from domain.ids import attempt_id
from domain.protocol import (
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
from domain.task import TaskSpec

READ: TypeAdapter[KeeperMessage] = TypeAdapter(KeeperMessage)
WAIT_S = 20.0


async def until(condition: Callable[[], Any], what: str, seconds: float = WAIT_S) -> Any:
    """Poll until it is true; its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)


class FakeAgent:
    """Grants leases of `lease_ms` under `epoch` while `answers` is true."""

    def __init__(self, folder: Path, lease_ms: int = 60_000) -> None:
        self.path = folder / "agent.sock"
        self.lease_ms = lease_ms
        self.epoch = 1
        self.answers = True
        self.forgets = True
        self.closed: tuple[str, ...] = ()
        self.hellos: list[KeeperHello] = []
        self.questions: list[LeaseQuestion] = []
        self.started: dict[str, AttemptStarted] = {}
        self.ended: dict[str, AttemptEnded] = {}
        self.endings_seen = 0
        self.logs: dict[int, LogAnswer] = {}
        self.socket: ServerConnection | None = None
        self._log_questions = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeAgent"]:
        async with unix_serve(self._serve, str(self.path), compression=None):
            yield self

    @contextlib.asynccontextmanager
    async def serving_tcp(self) -> AsyncIterator[int]:
        """On a free loopback port, which is the value."""
        async with serve(self._serve, "127.0.0.1", 0, compression=None) as server:
            yield next(iter(server.sockets)).getsockname()[1]

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        assert socket.request.path == "/v1/keeper"
        self.socket = socket
        with contextlib.suppress(ConnectionClosed):
            async for text in socket:
                await self._take(READ.validate_json(text))

    async def _take(self, message: KeeperMessage) -> None:
        match message:
            case KeeperHello():
                self.hellos.append(message)
            case LeaseQuestion():
                self.questions.append(message)
                if self.answers:
                    await self.answer(message)
            case AttemptStarted():
                self.started[message.attempt] = message
            case AttemptEnded():
                self.ended[message.attempt] = message
                self.endings_seen += 1
                if self.forgets:
                    await self.send(Forget(attempts=(message.attempt,)))
            case LogAnswer():
                self.logs[message.question] = message

    async def answer(self, question: LeaseQuestion) -> None:
        if question.epoch == self.epoch:
            await self.send(
                LeaseAnswer(
                    question=question.question, epoch=self.epoch, remaining_ms=self.lease_ms
                )
            )
        else:
            await self.send(
                KeeperGrant(
                    question=question.question,
                    epoch=self.epoch,
                    remaining_ms=self.lease_ms,
                    closed=self.closed,
                )
            )

    async def send(self, message: BaseModel) -> None:
        assert self.socket is not None
        await self.socket.send(message.model_dump_json())

    async def start(self, *command: str, name: str = "t", number: int = 1, **spec: Any) -> str:
        """Order an attempt; its id."""
        task = TaskSpec(id=name, command=command, **spec)
        attempt = attempt_id(task.key, number)
        await self.send(
            StartAttempt(attempt=attempt, key=task.key, number=number, cluster="c", spec=task)
        )
        return attempt

    async def stop(
        self, attempt: str, grace_s: int = 10, cause: StopCause = StopCause.CANCEL
    ) -> None:
        await self.send(StopAttempt(attempt=attempt, cause=cause, grace_s=grace_s))

    async def running(self, attempt: str) -> AttemptStarted:
        return await until(lambda: self.started.get(attempt), f"{attempt} started")

    async def ending(self, attempt: str, seconds: float = WAIT_S) -> AttemptEnded:
        return await until(lambda: self.ended.get(attempt), f"{attempt} ended", seconds)

    async def log(
        self, attempt: str, stream: Any = "stdout", offset: int = 0, limit: int = 1_000_000
    ) -> LogAnswer:
        self._log_questions += 1
        number = self._log_questions
        await self.send(
            LogQuestion(question=number, attempt=attempt, stream=stream, offset=offset, limit=limit)
        )
        return await until(lambda: self.logs.get(number), "log answer")

    async def leased(self, after: int = 0) -> None:
        """The keeper holds a lease of our epoch."""
        await until(
            lambda: any(question.epoch == self.epoch for question in self.questions[after:]),
            "a lease",
        )


class KeeperProcess:
    """A real keeper on a folder, dialling the fake agent."""

    def __init__(self, folder: Path, agent: FakeAgent, *flags: str, **environment: str) -> None:
        self.folder = folder
        self.flags = [
            *("--folder", str(folder), "--agent", f"unix:{agent.path}", "--cluster", "c"),
            *("--name", "m", "--cpu", "2", "--memory", "1Gi", *flags),
        ]  # Of a flag given twice, the last one counts.
        self.environment = {**os.environ, "DRYSTONE_LEASE_S": "30", **environment}
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder.with_suffix(".log")

    def __enter__(self) -> Self:
        self.run()
        return self

    def run(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "keeper", *self.flags],
                env=self.environment,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)

    def mark(self) -> str:
        return (self.folder / "mark").read_text()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()


def alive(pid: int) -> bool:
    """True while it runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def pid_in(path: Path) -> int:
    """The number that a process writes there."""
    return int(await until(lambda: path.exists() and path.read_text().strip(), f"pid in {path}"))


def size(path: Path) -> int:
    """Bytes so far; 0 without a file."""
    return path.stat().st_size if path.exists() else 0
