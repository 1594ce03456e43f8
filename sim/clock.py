"""Virtual time and the event heap: one thread, and equal seeds give equal orders of events."""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)
MS = 1_000
SECOND = 1_000_000
"""Virtual time is counted in microseconds since START."""

Act = Callable[[], None]


class Clock:
    """What is to happen, by instant; at one instant in the order in which it was asked."""

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        self._heap: list[tuple[int, int, Act]] = []
        self._asked = 0

    def after(self, delay_us: int, act: Act) -> None:
        """Do it so much later."""
        assert delay_us >= 0, delay_us
        self._asked += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._asked, act))

    def run_until(self, until_us: int, then: Act) -> None:
        """Let everything due before `until_us` happen; `then` follows each event."""
        while self._heap and self._heap[0][0] <= until_us:
            self.now_us, _, act = heapq.heappop(self._heap)
            self.events += 1
            act()
            then()
        self.now_us = max(self.now_us, until_us)

    @property
    def instant(self) -> datetime:
        """Now, as an instant."""
        return START + timedelta(microseconds=self.now_us)
