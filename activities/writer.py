"""The one thread of a process that writes the ledger; operations that wait together share a commit.

SQLite has one writer anyway; on PostgreSQL it keeps a process from waiting for its own locks. Work
that is known to lock other rows than its like may go apart: there, beside each other. Knows
transactions and queues; what an operation means stands in `store`.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from domain.claims import LedgerAnswer, LedgerOperation
from store.ledger import Applied
from store.session import transaction

WAITING_MAX = 10_000
"""More work than this is refused at once; Temporal asks again."""
GROUP_OPERATIONS_MAX = 200
APART_MAX = 2
"""Works side by side, where the database has several writers; the others wait their turn."""

Apply = Callable[[Connection, list[LedgerOperation]], Applied]
Committed = Callable[[list[LedgerOperation], Applied], None]
_T = TypeVar("_T")


_AWAY = (OperationalError, InterfaceError, PoolTimeoutError)
"""The database as a whole cannot be used now."""


class LedgerBusyError(Exception):
    """The queue is full, or the writer is stopping; trying again may help."""


@dataclass(slots=True)
class _Errand:
    """`operation` may share a transaction with its neighbours; `work` has its own."""

    operation: LedgerOperation | None = None
    work: Callable[[Connection], Any] | None = None
    answer: "Future[Any]" = field(default_factory=Future)


class LedgerWriter:
    """`committed` is called on the writer's thread, after each commit of operations."""

    def __init__(self, engine: Engine, apply: Apply, committed: Committed) -> None:
        self._engine = engine
        self._apply = apply
        self._committed = committed
        self._errands: queue.Queue[_Errand | None] = queue.Queue(maxsize=WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._apart = None
        if engine.dialect.name == "postgresql":
            self._apart = ThreadPoolExecutor(APART_MAX, thread_name_prefix="ledger-apart")
        self._stopping = False

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, then end."""
        self._stopping = True
        self._errands.put(None)
        self._thread.join()
        if self._apart is not None:
            self._apart.shutdown()

    async def apply(self, operation: LedgerOperation) -> LedgerAnswer:
        """The answer, once it is committed."""
        answer: LedgerAnswer = await self._wait(_Errand(operation=operation))
        return answer

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        """`work` in a transaction of its own; its result, once that is committed."""
        result: _T = await self._wait(_Errand(work=work))
        return result

    def begin_apart(self, work: Callable[[Connection], _T]) -> "Future[_T]":
        """`run` for long work of which several lock no row in common but at their ends."""
        errand = _Errand(work=work)
        if self._apart is None:
            self._begin(errand)
        else:
            self._refuse_when_stopping()
            self._apart.submit(self._alone, errand, work)
        return errand.answer

    async def _wait(self, errand: _Errand) -> Any:
        self._begin(errand)
        return await asyncio.wrap_future(errand.answer)

    def _begin(self, errand: _Errand) -> None:
        self._refuse_when_stopping()
        try:
            self._errands.put_nowait(errand)
        except queue.Full:
            raise LedgerBusyError(f"{WAITING_MAX} operations wait already") from None

    def _refuse_when_stopping(self) -> None:
        if self._stopping:
            raise LedgerBusyError("the worker is stopping")

    def _run(self) -> None:
        """Everything that waits is taken at once: the busier it is, the larger the groups."""
        ended = False
        while not ended:
            taken = [self._errands.get()]
            while len(taken) < GROUP_OPERATIONS_MAX and not self._errands.empty():
                taken.append(self._errands.get_nowait())
            ended = None in taken
            # Nobody waits for what was cancelled; taking it on marks the rest as running.
            errands = [
                errand
                for errand in taken
                if errand is not None and errand.answer.set_running_or_notify_cancel()
            ]
            operations = [errand for errand in errands if errand.operation is not None]
            if operations:
                self._group(operations)
            for errand in errands:
                if errand.work is not None:
                    self._alone(errand, errand.work)

    def _group(self, errands: list[_Errand]) -> None:
        """One transaction for all; where that fails, one for each, so that none harms another."""
        operations = [errand.operation for errand in errands if errand.operation is not None]
        try:
            with transaction(self._engine) as connection:
                applied = self._apply(connection, operations)
        except _AWAY as error:
            for errand in errands:  # One by one would be to wait for it as often.
                errand.answer.set_exception(error)
            return
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            if len(errands) == 1:
                errands[0].answer.set_exception(error)
                return
            for errand in errands:
                self._group([errand])
            return
        for errand, answer in zip(errands, applied.answers, strict=True):
            errand.answer.set_result(answer)
        self._committed(operations, applied)

    def _alone(self, errand: _Errand, work: Callable[[Connection], Any]) -> None:
        try:
            with transaction(self._engine) as connection:
                result = work(connection)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            errand.answer.set_exception(error)
        else:
            errand.answer.set_result(result)
