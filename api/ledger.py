"""How the API reads the ledger: in threads of its own, within a time limit. Never writes."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError as WrongDataError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from domain.errors import InvalidError, UnavailableError
from store.session import reading

THREADS = 8
"""Fewer than the pool's connections: a read waits in our queue and not in the pool's."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class LedgerReader:
    """Runs readers of store/ for async callers; UnavailableError when the database is not there."""

    def __init__(self, engine: Engine, answer_s: float) -> None:
        self._engine, self._answer_s = engine, answer_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ledger")

    async def read(
        self,
        reader: Callable[Concatenate[Connection, _P], _T],
        *args: _P.args,
        **keywords: _P.kwargs,
    ) -> _T:
        """What the reader returns, given a connection and these arguments."""

        def within() -> _T:
            with reading(self._engine) as connection:
                return reader(connection, *args, **keywords)

        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._answer_s):
                return await loop.run_in_executor(self._threads, within)
        except TimeoutError:
            raise UnavailableError("the ledger's database does not answer in time") from None
        except WrongDataError:
            raise InvalidError("cannot be looked up: a text holds what no text may") from None
        except (DBAPIError, PoolTimeoutError) as error:
            # Missing tables are the same to a caller: the worker makes them as it starts.
            raise UnavailableError(
                f"the ledger's database cannot be read now ({type(error).__name__})"
            ) from error

    def close(self) -> None:
        """Let threads and connections go; reads that hang are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._engine.dispose()
