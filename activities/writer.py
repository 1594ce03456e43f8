"""The one thread of a process that writes the ledger; operations that wait together share a commit.

SQLite has one writer anyway; on PostgreSQL it keeps a process from waiting for its own locks.
Knows transactions and queues; what an operation means stands in `store`.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from domain.claims import LedgerAnswer, LedgerOperation
from store.ledger import Applied
from store.session import transaction

WAITING_MAX = 10_000
"""More work than this is refused at once; Temporal asks again."""
GROUP_OPERATIONS_MAX = 200

Apply = Callable[[Connection, list[LedgerOperation]], Applied]
_T = TypeVar("_T")


class LedgerBusyError(Exception):
    """The queue is full, or the writer is stopping; trying again may help."""


@dataclass(slots=True)
class _Job:
    """`operation` may share a transaction with its neighbours; `work` has its own."""

    operation: LedgerOperation | None = None
    work: Callable[[Connection], Any] | None = None
    answer: "Future[Any]" = field(default_factory=Future)


class LedgerWriter:
    """`committed` is called on the writer's thread, after each commit of operations."""

    def __init__(self, engine: Engine, apply: Apply, committed: Callable[[Applied], None]) -> None:
        self._engine = engine
        self._apply = apply
        self._committed = committed
        self._jobs: queue.Queue[_Job | None] = queue.Queue(maxsize=WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._stopping = False

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, then end."""
        self._stopping = True
        self._jobs.put(None)
        self._thread.join()

    async def apply(self, operation: LedgerOperation) -> LedgerAnswer:
        """The answer, once it is committed."""
        answer: LedgerAnswer = await self._wait(_Job(operation=operation))
        return answer

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        """`work` in a transaction of its own; its result, once that is committed."""
        result: _T = await self._wait(_Job(work=work))
        return result

    async def _wait(self, job: _Job) -> Any:
        if self._stopping:
            raise LedgerBusyError("the worker is stopping")
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            raise LedgerBusyError(f"{WAITING_MAX} operations wait already") from None
        return await asyncio.wrap_future(job.answer)

    def _run(self) -> None:
        """Everything that waits is taken at once: the busier it is, the larger the groups."""
        ended = False
        while not ended:
            taken = [self._jobs.get()]
            while len(taken) < GROUP_OPERATIONS_MAX and not self._jobs.empty():
                taken.append(self._jobs.get_nowait())
            ended = None in taken
            # Nobody waits for what was cancelled; taking it on marks the rest as running.
            jobs = [j for j in taken if j is not None and j.answer.set_running_or_notify_cancel()]
            operations = [job for job in jobs if job.operation is not None]
            if operations:
                self._group(operations)
            for job in jobs:
                if job.work is not None:
                    self._alone(job, job.work)

    def _group(self, jobs: list[_Job]) -> None:
        """One transaction for all; where that fails, one for each, so that none harms another."""
        operations = [job.operation for job in jobs if job.operation is not None]
        try:
            with transaction(self._engine) as connection:
                applied = self._apply(connection, operations)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            if len(jobs) == 1:
                jobs[0].answer.set_exception(error)
                return
            for job in jobs:
                self._group([job])
            return
        for job, answer in zip(jobs, applied.answers, strict=True):
            job.answer.set_result(answer)
        self._committed(applied)

    def _alone(self, job: _Job, work: Callable[[Connection], Any]) -> None:
        try:
            with transaction(self._engine) as connection:
                result = work(connection)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            job.answer.set_exception(error)
        else:
            job.answer.set_result(result)
