"""Reports on their way to Temporal: many in parallel, each until it is taken or its task is gone.

What is in it is in the journal too, so it may be dropped with the process.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.service import RPCError, RPCStatusCode

from agent.admission import HandOver, Report, ReportTaken, WorkflowGone
from agent.state import What
from domain.ids import split_attempt_id
from domain.protocol import ClusterMessage, TaskMessage
from runtime.telemetry import logger

SENDERS = 32
"""Signals in flight at once."""
BACKOFF_S_MIN = 0.2
BACKOFF_S_MAX = 30.0
SIGNAL_S_MAX = 10.0
TRIES_BETWEEN_LINES = 20
"""A report that still cannot be sent says so once in so many tries."""


class Signals(Protocol):
    """The two signals an agent sends."""

    async def report(self, key: str, message: TaskMessage) -> None:
        """To a TaskWorkflow. RPCError when it was not taken."""

    async def tell(self, message: ClusterMessage) -> None:
        """To the ClusterWorkflow, which is started if need be. RPCError when it was not taken."""


def is_gone(error: RPCError) -> bool:
    """NOT_FOUND that speaks of the workflow (unknown, or completed), never of the namespace."""
    if error.status is not RPCStatusCode.NOT_FOUND:
        return False
    details = error.grpc_status.details
    return not any(detail.Is(NamespaceNotFoundFailure.DESCRIPTOR) for detail in details) and (
        "namespace" not in error.message.lower()
    )


class Outbox:
    """Bounded by what the journal holds unacknowledged; `SENDERS` of it are in flight."""

    def __init__(self, tell: Callable[[What], None], chance: random.Random) -> None:
        self._tell = tell
        self._chance = chance
        self._ready: deque[tuple[Report | HandOver, int]] = deque()
        self._there = asyncio.Semaphore(0)
        self._unsent = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, sent: Report | HandOver) -> None:
        """Send it until it is taken, or its workflow is gone."""
        self._unsent += 1
        self._empty.clear()
        self._queue(sent, 0)

    async def run(self, signals: Signals) -> None:
        """Until cancelled."""
        await asyncio.gather(*(self._send_for_ever(signals) for _ in range(SENDERS)))

    async def flushed(self, seconds_max: float) -> int:
        """Wait until all is sent, at most so long; the answer is how much is not."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._empty.wait()
        except TimeoutError:
            return self._unsent
        return 0

    def _queue(self, sent: Report | HandOver, tries: int) -> None:
        self._ready.append((sent, tries))
        self._there.release()

    async def _send_for_ever(self, signals: Signals) -> None:
        while True:
            await self._there.acquire()
            sent, tries = self._ready.popleft()
            try:
                await _send(signals, sent)
            except RPCError as error:
                if isinstance(sent, Report) and is_gone(error):
                    self._done(WorkflowGone(sent))
                else:
                    self._try_again(sent, tries + 1, error)
            else:
                self._done(ReportTaken(sent))

    def _try_again(self, sent: Report | HandOver, tries: int, error: RPCError) -> None:
        """Later, and each at its own time: a server that comes back is not run over."""
        step_s = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(tries - 1, 16))
        wait_s = step_s * self._chance.uniform(0.5, 1.0)
        asyncio.get_running_loop().call_later(wait_s, self._queue, sent, tries)
        if tries % TRIES_BETWEEN_LINES == 0:
            logger().warning(
                "report not taken", attempt=sent.attempt, tries=tries, error=error.message
            )

    def _done(self, what: ReportTaken | WorkflowGone) -> None:
        self._unsent -= 1
        if self._unsent == 0:
            self._empty.set()
        self._tell(what)


async def _send(signals: Signals, sent: Report | HandOver) -> None:
    match sent:
        case Report(attempt=attempt, message=message):
            await signals.report(split_attempt_id(attempt)[0], message)
        case HandOver(orphan=orphan):
            await signals.tell(orphan)
