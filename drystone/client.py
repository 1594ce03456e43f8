"""The Python client of Drystone: REST, typed, sync and async.

A submission carries an id of the client's, so every request here may be repeated safely; `retries`
of them are, when the API cannot be reached or says that it cannot work now. A refusal is an
exception of domain.errors.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Self

import httpx

from domain.errors import DrystoneError
from domain.faces import (
    AttemptPage,
    ClusterPage,
    EventPage,
    Explanation,
    MachinePage,
    OutputPiece,
    gap_line,
)
from domain.headroom import Headroom
from domain.views import BrakeView, ClusterView, MachineView, TaskPage, TaskView
from drystone.questions import (
    BUSY_S_MAX,
    FRAMED,
    REQUEST_S_MAX,
    Answer,
    Body,
    Patience,
    Question,
    api_address,
    cancellation,
    cordon,
    cut_off,
    error_of,
    fleet_headroom,
    is_framed,
    logs_query,
    loss,
    machine_list,
    one_cluster,
    one_task,
    part_of,
    read_answer,
    read_piece,
    submission,
    task_list,
    task_path,
    unreachable,
)

RETRIES = 6
WAIT_S = 30.0
"""One question of a long wait; the API itself allows a minute."""


class Client:
    """`with Client() as drystone: drystone.submit({"command": ["true"]})`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        retries: int = RETRIES,
        busy_s_max: float = BUSY_S_MAX,
        waits: Callable[[DrystoneError], None] | None = None,
    ) -> None:
        self.url = api_address(url)
        self.retries, self.busy_s_max, self.waits = retries, busy_s_max, waits
        self._http = httpx.Client(base_url=self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the connections go."""
        self._http.close()

    def submit(self, task: Body, *, key: str | None = None) -> TaskView:
        """Submit once: the id (or `key`) makes repetition safe. Refusals are domain.errors."""
        return self._ask(submission(task, key))

    def get(self, task_id: str, *, team: str = "default", wait_s: float = 0) -> TaskView:
        """Where the task stands; waits up to `wait_s` for its end."""
        return self._ask(one_task(team, task_id, wait_s))

    def wait(
        self, task_id: str, *, team: str = "default", timeout_s: float | None = None
    ) -> TaskView:
        """The task once it has ended; TimeoutError after `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = WAIT_S if deadline is None else min(WAIT_S, deadline - time.monotonic())
            task = self.get(task_id, team=team, wait_s=max(left, 0.0))
            if task.phase.final:
                return task
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{task.key} is {task.phase} after {timeout_s} s")

    def list(
        self,
        *,
        team: str | None = None,
        phase: str | None = None,
        cluster: str | None = None,
        priority: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> TaskPage:
        """One page of tasks, newest first."""
        question = task_list(
            team=team, phase=phase, cluster=cluster, priority=priority, cursor=cursor, limit=limit
        )
        return self._ask(question)

    def cancel(self, task_id: str, *, team: str = "default", abandon: bool = False) -> TaskView:
        """Ask for its end; `abandon` closes it even where it may still run."""
        return self._ask(cancellation(team, task_id, abandon))

    def attempts(self, task_id: str, *, team: str = "default") -> AttemptPage:
        """Its attempts, oldest first."""
        return self._ask(part_of(team, task_id, "attempts", AttemptPage))

    def events(self, task_id: str, *, team: str = "default") -> EventPage:
        """Its newest events, oldest first."""
        return self._ask(part_of(team, task_id, "events", EventPage))

    def explain(self, task_id: str, *, team: str = "default") -> Explanation:
        """Why it stands where it stands."""
        return self._ask(part_of(team, task_id, "explain", Explanation))

    def logs(
        self,
        task_id: str,
        *,
        team: str = "default",
        stream: str = "both",
        attempt: int | None = None,
        follow: bool = False,
        offset: int = 0,
    ) -> Iterator[bytes]:
        """Output in chunks as it comes; with `follow` until the attempt (or the task) has ended.

        Where output is no longer kept, a line among it says how much; `output` tells that apart.
        UnavailableError when it breaks off.
        """
        pieces = self.output(
            task_id, team=team, stream=stream, attempt=attempt, follow=follow, offset=offset
        )
        for piece in pieces:
            if piece.stream is not None:
                yield gap_line(piece.gap) + piece.content

    def output(
        self,
        task_id: str,
        *,
        team: str = "default",
        stream: str = "both",
        attempt: int | None = None,
        follow: bool = False,
        offset: int = 0,
    ) -> Iterator[OutputPiece]:
        """As `logs`, in pieces that name their attempt and stream, and how much is missing.

        UnavailableError when it breaks off: ask again from the offset reached.
        """
        path = task_path(team, task_id, "logs")
        query = logs_query(stream, attempt, follow, offset)
        limits = httpx.Timeout(REQUEST_S_MAX, read=None if follow else REQUEST_S_MAX)
        try:
            with self._http.stream(
                "GET", path, params=query, headers=FRAMED, timeout=limits
            ) as response:
                if not is_framed(response):
                    response.read()
                    raise error_of(response)
                for line in response.iter_lines():
                    piece = read_piece(line)
                    if piece.end:
                        return
                    yield piece
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error
        raise cut_off()

    def machines(self, *, cluster: str | None = None, cursor: str | None = None) -> MachinePage:
        """One page of machines."""
        return self._ask(machine_list(cluster, cursor))

    def headroom(self) -> Headroom:
        """What is free on all machines, and how much of it is of use."""
        return self._ask(fleet_headroom())

    def cordon(self, cluster: str, machine: str, *, cordoned: bool = True) -> MachineView:
        """Stop or allow new placements on a machine."""
        return self._ask(cordon(cluster, machine, cordoned))

    def clusters(self) -> ClusterPage:
        """All clusters."""
        return self._ask(Question("GET", "/v1/clusters", ClusterPage))

    def cluster(self, name: str) -> ClusterView:
        """One cluster."""
        return self._ask(one_cluster(name))

    def confirm_lost(self, cluster: str, *, by: str) -> ClusterView:
        """Vouch that nothing of this cluster runs any more."""
        return self._ask(loss(cluster, by))

    def brake(self) -> BrakeView:
        """The stop on mass replacement."""
        return self._ask(Question("GET", "/v1/brake", BrakeView))

    def _ask(self, question: Question[Answer]) -> Answer:
        patience = Patience(self.retries, self.busy_s_max, self.waits)
        while True:
            response, failure = None, None
            try:
                response = self._http.request(
                    question.method,
                    question.path,
                    params=question.query,
                    content=question.body,
                    headers={"Content-Type": "application/json"} if question.body else None,
                    timeout=question.timeout_s,
                )
            except httpx.HTTPError as error:
                failure = error
            pause_s = patience.pause_s(response)
            if pause_s is not None:
                time.sleep(pause_s)
            elif response is not None:
                return read_answer(question.answer, response)
            else:
                assert failure is not None
                raise unreachable(self.url, failure) from failure


class AsyncClient:
    """`async with AsyncClient() as drystone: await drystone.submit({"command": ["true"]})`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        retries: int = RETRIES,
        busy_s_max: float = BUSY_S_MAX,
        waits: Callable[[DrystoneError], None] | None = None,
    ) -> None:
        self.url = api_address(url)
        self.retries, self.busy_s_max, self.waits = retries, busy_s_max, waits
        self._http = httpx.AsyncClient(base_url=self.url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the connections go."""
        await self._http.aclose()

    async def submit(self, task: Body, *, key: str | None = None) -> TaskView:
        """Submit once: the id (or `key`) makes repetition safe. Refusals are domain.errors."""
        return await self._ask(submission(task, key))

    async def get(self, task_id: str, *, team: str = "default", wait_s: float = 0) -> TaskView:
        """Where the task stands; waits up to `wait_s` for its end."""
        return await self._ask(one_task(team, task_id, wait_s))

    async def wait(self, task_id: str, *, team: str = "default") -> TaskView:
        """The task once it has ended; bound it with `asyncio.timeout`."""
        while True:
            task = await self.get(task_id, team=team, wait_s=WAIT_S)
            if task.phase.final:
                return task

    async def list(
        self,
        *,
        team: str | None = None,
        phase: str | None = None,
        cluster: str | None = None,
        priority: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> TaskPage:
        """One page of tasks, newest first."""
        question = task_list(
            team=team, phase=phase, cluster=cluster, priority=priority, cursor=cursor, limit=limit
        )
        return await self._ask(question)

    async def cancel(
        self, task_id: str, *, team: str = "default", abandon: bool = False
    ) -> TaskView:
        """Ask for its end; `abandon` closes it even where it may still run."""
        return await self._ask(cancellation(team, task_id, abandon))

    async def explain(self, task_id: str, *, team: str = "default") -> Explanation:
        """Why it stands where it stands."""
        return await self._ask(part_of(team, task_id, "explain", Explanation))

    async def logs(
        self,
        task_id: str,
        *,
        team: str = "default",
        stream: str = "both",
        attempt: int | None = None,
        follow: bool = False,
        offset: int = 0,
    ) -> AsyncIterator[bytes]:
        """Output in chunks as it comes; with `follow` until the attempt (or the task) has ended.

        Where output is no longer kept, a line among it says how much; `output` tells that apart.
        UnavailableError when it breaks off.
        """
        pieces = self.output(
            task_id, team=team, stream=stream, attempt=attempt, follow=follow, offset=offset
        )
        async for piece in pieces:
            if piece.stream is not None:
                yield gap_line(piece.gap) + piece.content

    async def output(
        self,
        task_id: str,
        *,
        team: str = "default",
        stream: str = "both",
        attempt: int | None = None,
        follow: bool = False,
        offset: int = 0,
    ) -> AsyncIterator[OutputPiece]:
        """As `logs`, in pieces that name their attempt and stream, and how much is missing.

        UnavailableError when it breaks off: ask again from the offset reached.
        """
        path = task_path(team, task_id, "logs")
        query = logs_query(stream, attempt, follow, offset)
        limits = httpx.Timeout(REQUEST_S_MAX, read=None if follow else REQUEST_S_MAX)
        try:
            async with self._http.stream(
                "GET", path, params=query, headers=FRAMED, timeout=limits
            ) as response:
                if not is_framed(response):
                    await response.aread()
                    raise error_of(response)
                async for line in response.aiter_lines():
                    piece = read_piece(line)
                    if piece.end:
                        return
                    yield piece
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error
        raise cut_off()

    async def _ask(self, question: Question[Answer]) -> Answer:
        patience = Patience(self.retries, self.busy_s_max, self.waits)
        while True:
            response, failure = None, None
            try:
                response = await self._http.request(
                    question.method,
                    question.path,
                    params=question.query,
                    content=question.body,
                    headers={"Content-Type": "application/json"} if question.body else None,
                    timeout=question.timeout_s,
                )
            except httpx.HTTPError as error:
                failure = error
            pause_s = patience.pause_s(response)
            if pause_s is not None:
                await asyncio.sleep(pause_s)
            elif response is not None:
                return read_answer(question.answer, response)
            else:
                assert failure is not None
                raise unreachable(self.url, failure) from failure
