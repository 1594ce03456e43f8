"""How many tasks wait for a machine, and whether one more may. A cache of a second."""

import time

from api.ledger import LedgerReader
from domain.errors import BacklogFullError
from store.overview import partitions

AGE_S_MAX = 1.0


class Backlog:
    """Read again when older than a second; what was accepted since then is added by hand.

    So the bound is passed at most by what other API processes accept within that second.
    """

    def __init__(self, ledger: LedgerReader, tasks_max: int) -> None:
        self._ledger, self._tasks_max = ledger, tasks_max
        self._waiting = 0
        self._read_at = float("-inf")

    async def check(self) -> None:
        """BacklogFullError, which names the bound, when no more are taken now."""
        if time.monotonic() - self._read_at > AGE_S_MAX:
            # Before the question, so that a burst asks it once.
            self._read_at = time.monotonic()
            self._waiting = sum(one.waiting for one in await self._ledger.read(partitions))
        if self._waiting >= self._tasks_max:
            raise BacklogFullError(
                f"{self._waiting} tasks wait for a machine, and no more than {self._tasks_max} may:"
                " nothing was accepted, ask again later"
            )

    def grown(self) -> None:
        """One more was accepted."""
        self._waiting += 1
