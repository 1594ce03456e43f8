"""Attempts that only pretend: they last as long as their specification says. No processes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from domain.protocol import StartAttempt
from domain.task import Simulated
from keeper.attempts import Cleared, Event, Exit, Exited, Launched, LaunchFailed

TERMINATED = 128 + 15
KILLED = 128 + 9


@dataclass(slots=True)
class _Play:
    """One attempt: how long it has still to go, and the timer while it goes."""

    exit_code: int
    left_s: float
    timer: asyncio.TimerHandle | None = None


class SimulatedDriver:
    """The simulated driver of one keeper; runs in one event loop."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._plays: dict[str, _Play] = {}

    def launch(self, start: StartAttempt) -> Launched | LaunchFailed:
        """Set the timer."""
        wanted = start.spec.simulated or Simulated()
        self._plays[start.attempt] = _Play(wanted.exit_code, wanted.duration_ms / 1_000)
        self.thaw(start.attempt)
        return Launched(start.attempt)

    def look(self, attempt: str) -> None:
        """Nothing exits unnoticed."""

    def terminate(self, attempt: str) -> None:
        """It obeys at once."""
        self._loop.call_soon(self._end, attempt, TERMINATED, True)

    def kill(self, attempt: str) -> None:
        """It ends, unless it has."""
        self._loop.call_soon(self._end, attempt, KILLED, True)

    def freeze(self, attempt: str) -> None:
        """Keep what it has still to go."""
        play = self._plays.get(attempt)
        if play is not None and play.timer is not None:
            play.left_s = max(0.0, play.timer.when() - self._loop.time())
            play.timer.cancel()
            play.timer = None

    def thaw(self, attempt: str) -> None:
        """Go on for what was left."""
        play = self._plays.get(attempt)
        if play is not None and play.timer is None:
            play.timer = self._loop.call_later(
                play.left_s, self._end, attempt, play.exit_code, False
            )

    def close(self) -> None:
        """Forget all."""
        for attempt in self._plays:
            self.freeze(attempt)
        self._plays.clear()

    def _end(self, attempt: str, exit_code: int, by_signal: bool) -> None:
        play = self._plays.pop(attempt, None)
        if play is None:
            return
        if play.timer is not None:
            play.timer.cancel()
        self._tell(Exited(attempt, Exit(exit_code, by_signal)))
        self._tell(Cleared(attempt))
