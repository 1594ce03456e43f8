"""Builders for the pure part of the keeper: states, messages and instants with defaults."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from domain.attempt import Ending, StopCause
from domain.ids import attempt_id
from domain.protocol import KeeperGrant, StartAttempt, StopAttempt
from domain.task import OnLoss, TaskSpec
from keeper.attempts import (
    Event,
    Exit,
    Exited,
    Instant,
    Keeper,
    Launched,
    QuestionDue,
    Ticked,
    check,
    step,
)

LEASE_MS = 60_000
EPOCH_START = datetime(2026, 1, 1, tzinfo=UTC)


def instant(boot_ms: int) -> Instant:
    return Instant(boot_ms, EPOCH_START + timedelta(milliseconds=boot_ms))


def start_of(name: str = "t", number: int = 1, **spec: Any) -> StartAttempt:
    task = TaskSpec(id=name, command=("true",), **spec)
    attempt = attempt_id(task.key, number)
    return StartAttempt(attempt=attempt, key=task.key, number=number, cluster="c", spec=task)


def stop_of(attempt: str, cause: StopCause = StopCause.PREEMPT, grace_s: int = 30) -> StopAttempt:
    return StopAttempt(attempt=attempt, cause=cause, grace_s=grace_s)


def grant_of(
    question: int, epoch: int = 1, remaining_ms: int = LEASE_MS, *closed: str
) -> KeeperGrant:
    return KeeperGrant(question=question, epoch=epoch, remaining_ms=remaining_ms, closed=closed)


class Played:
    """A keeper's state that is stepped and checked, with everything it wanted done."""

    def __init__(self, state: Keeper | None = None) -> None:
        self.state = state or Keeper()
        self.now_ms = 0
        self.effects: tuple[Any, ...] = ()

    def at(self, now_ms: int) -> "Played":
        assert now_ms >= self.now_ms
        self.now_ms = now_ms
        return self

    def do(self, event: Event) -> tuple[Any, ...]:
        """Step now; the effects of this step."""
        self.state, effects = step(self.state, event, instant(self.now_ms))
        check(self.state)
        self.effects += effects
        return effects

    def tick(self, now_ms: int) -> tuple[Any, ...]:
        return self.at(now_ms).do(Ticked())

    def leased(self, epoch: int = 1, remaining_ms: int = LEASE_MS) -> "Played":
        """Ask now and be granted at once."""
        self.do(QuestionDue())
        self.do(grant_of(self.state.questions_asked, epoch, remaining_ms))
        return self

    def running(self, name: str = "t", number: int = 1, **spec: Any) -> str:
        """Start one, and let the driver say that it did."""
        start = start_of(name, number, **spec)
        self.do(start)
        self.do(Launched(start.attempt))
        return start.attempt

    def exited(self, attempt: str, code: int = 0, by_signal: bool = False) -> tuple[Any, ...]:
        return self.do(Exited(attempt, Exit(code, by_signal)))

    def forked(self) -> "Played":
        """The same state, to be stepped another way."""
        other = Played(replace(self.state))
        other.now_ms = self.now_ms
        return other


WAITING: dict[str, Any] = {"on_loss": OnLoss.WAIT}


def ending_of(played: Played, attempt: str) -> Ending:
    return played.state.ended[attempt].ending
