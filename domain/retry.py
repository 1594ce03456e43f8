"""The retry decision: budgets by cause, backoff. Pure; chance comes in as a number."""

from datetime import timedelta
from enum import StrEnum

from pydantic import BaseModel, Field


class Cause(StrEnum):
    """Whose budget an ended attempt is charged to. Only FAILURE is the user's."""

    FAILURE = "failure"
    LOSS = "loss"
    PREEMPTION = "preemption"
    REFUSAL = "refusal"


class Backoff(BaseModel, frozen=True):
    """Exponential with a cap; the first step is the base."""

    base_ms: int = Field(default=1_000, ge=1, le=3_600_000)
    factor: int = Field(default=2, ge=1, le=10)
    cap_ms: int = Field(default=60_000, ge=1, le=86_400_000)


class Retries(BaseModel, frozen=True):
    """How many attempts may end for each cause before the task fails."""

    failures: int = Field(default=0, ge=0, le=1_000)
    losses: int = Field(default=20, ge=0, le=1_000)
    preemptions: int = Field(default=1_000, ge=0, le=100_000)
    refusals: int = Field(default=1_000, ge=0, le=100_000)
    backoff: Backoff = Backoff()


class Spent(BaseModel, frozen=True):
    """How many attempts have ended so far, by cause."""

    failures: int = 0
    losses: int = 0
    preemptions: int = 0
    refusals: int = 0

    def of(self, cause: Cause) -> int:
        """The count for one cause."""
        return int(getattr(self, _FIELD[cause]))

    def charged(self, cause: Cause) -> "Spent":
        """One more for this cause."""
        return self.model_copy(update={_FIELD[cause]: self.of(cause) + 1})

    def at_least(self, other: "Spent") -> "Spent":
        """Per cause the greater of both: two incomplete memories of the same attempts."""
        both = {f: max(int(getattr(self, f)), int(getattr(other, f))) for f in _FIELD.values()}
        return Spent(**both)


_FIELD = {
    Cause.FAILURE: "failures",
    Cause.LOSS: "losses",
    Cause.PREEMPTION: "preemptions",
    Cause.REFUSAL: "refusals",
}
_EXPONENT_MAX = 40


def budget_left(retries: Retries, spent: Spent, cause: Cause) -> bool:
    """True when one more attempt may follow, `spent` including the one that just ended."""
    return spent.of(cause) <= int(getattr(retries, _FIELD[cause]))


def backoff(retries: Retries, spent: Spent, cause: Cause, chance: float) -> timedelta:
    """How long the next attempt waits: `chance` in [0, 1) makes 0.5 to 1.0 of the step, never zero.

    Preempted work waits for nothing: it was not its fault, and room decides when it runs again.
    """
    assert 0.0 <= chance < 1.0, chance
    if cause is Cause.PREEMPTION:
        return timedelta(0)
    plan = retries.backoff
    exponent = min(max(spent.of(cause) - 1, 0), _EXPONENT_MAX)
    step_ms = min(plan.cap_ms, plan.base_ms * plan.factor**exponent)
    return timedelta(milliseconds=max(1.0, step_ms * (0.5 + chance / 2)))
