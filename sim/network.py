"""Messages between processes: delayed, reordered, lost on a blocked way."""

from collections.abc import Callable
from random import Random
from typing import TypeVar

from sim.clock import MS, SECOND, Clock
from sim.trace import Trace

T = TypeVar("T")
CALL_S_MAX = 5
"""Who has no answer by then has none."""


class Network:
    """Ways between named places; each direction can be blocked by itself."""

    def __init__(self, clock: Clock, trace: Trace, rng: Random) -> None:
        self._clock = clock
        self._trace = trace
        self._rng = rng
        self.blocked: set[tuple[str, str]] = set()
        self.slow = 0.0
        """The share of messages that take seconds."""

    def block(self, source: str, target: str) -> None:
        """Nothing gets from here to there."""
        self.blocked.add((source, target))
        self._trace.line("network", "block", f"{source} -> {target}")

    def heal(self, source: str, target: str) -> None:
        """Messages get through again."""
        if (source, target) in self.blocked:
            self.blocked.discard((source, target))
            self._trace.line("network", "heal", f"{source} -> {target}")

    def send(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        """One message; lost if the way is blocked when it leaves or when it arrives."""
        if (source, target) in self.blocked:
            return

        def through() -> None:
            if (source, target) not in self.blocked:
                arrive()

        self._clock.after(self._delay_us(), through)

    def call(
        self,
        source: str,
        target: str,
        serve: Callable[[], T],
        done: Callable[[T | None], None],
    ) -> None:
        """A request and its answer. None: either was lost, so it may have been served or not."""
        answered = [False]

        def answer(value: T | None) -> None:
            if not answered[0]:
                answered[0] = True
                done(value)

        def arrived() -> None:
            value = serve()
            self.send(target, source, lambda: answer(value))

        self.send(source, target, arrived)
        self._clock.after(CALL_S_MAX * SECOND, lambda: answer(None))

    def _delay_us(self) -> int:
        if self.slow and self._rng.random() < self.slow:
            return self._rng.randrange(MS, 4 * SECOND)
        return self._rng.randrange(MS // 5, 20 * MS)
