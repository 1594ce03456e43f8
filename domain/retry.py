"""The retry decision: budgets by cause, backoff. Pure; chance comes in as a number."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError


class Cause(StrEnum):
    """Whose budget an ended attempt is charged to. Only FAILURE is the user's."""

    FAILURE = "failure"
    LOSS = "loss"
    PREEMPTION = "preemption"
    REFUSAL = "refusal"


class FailureClass(StrEnum):
    """In which way an attempt failed that is charged to the user."""

    EXIT = "exit"
    """It exited with another code than 0."""
    SIGNAL = "signal"
    """It was killed by a signal that nobody here sent."""
    TIMEOUT = "timeout"
    """It ran longer than `run_timeout_s`."""
    START = "start"
    """There was no such command or working folder, or the machine could not start it."""


class Growth(StrEnum):
    """How the steps of a backoff grow."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"
    FIBONACCI = "fibonacci"


class Backoff(BaseModel, frozen=True):
    """Steps between attempts, with a cap; the first step is the base.

    `factor` is of exponential growth alone. Fibonacci's steps are 1, 1, 2, 3, 5, 8 ... bases.
    """

    growth: Growth = Growth.EXPONENTIAL
    base_ms: int = Field(default=1_000, ge=1, le=3_600_000)
    factor: int = Field(default=2, ge=1, le=10)
    cap_ms: int = Field(default=60_000, ge=1, le=86_400_000)


FAILURES_MAX = 1_000


def _failures(given: Any) -> Any:
    """Said here, for pydantic names each kind that a union might have been."""
    if given == "unlimited":
        return given
    try:
        whole = _WHOLE.validate_python(given)
    except ValidationError:
        whole = -1
    if not 0 <= whole <= FAILURES_MAX:
        raise ValueError(f'must be a whole number from 0 to {FAILURES_MAX}, or "unlimited"')
    return whole


_WHOLE = TypeAdapter(int)
Failures = Annotated[
    Annotated[int, Field(ge=0, le=FAILURES_MAX)] | Literal["unlimited"], BeforeValidator(_failures)
]
ExitCode = Annotated[int, Field(ge=1, le=255)]
EXIT_CODES_MAX = 255


class Retries(BaseModel, frozen=True):
    """How many attempts may end for each cause before the task fails, and which failures end it.

    Exit codes are as shells tell them, 128 + signal for what a signal killed.
    """

    failures: Failures = 0
    losses: int = Field(default=20, ge=0, le=1_000)
    preemptions: int = Field(default=1_000, ge=0, le=100_000)
    refusals: int = Field(default=1_000, ge=0, le=100_000)
    final_on: tuple[FailureClass, ...] = Field(default=(), max_length=len(FailureClass))
    """Failures of these classes are not tried again, whatever is left of the budget."""
    final_exit_codes: tuple[ExitCode, ...] = Field(default=(), max_length=EXIT_CODES_MAX)
    """Nor are these exit codes."""
    only_exit_codes: tuple[ExitCode, ...] = Field(default=(), max_length=EXIT_CODES_MAX)
    """If any are given: every other exit code is final."""
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
_WITH_CODE = (FailureClass.EXIT, FailureClass.SIGNAL)
_EXPONENT_MAX = 40


def budget_left(retries: Retries, spent: Spent, cause: Cause) -> bool:
    """True when one more attempt may follow, `spent` including the one that just ended."""
    budget: int | Literal["unlimited"] = getattr(retries, _FIELD[cause])
    return budget == "unlimited" or spent.of(cause) <= budget


def why_final(retries: Retries, failure: FailureClass, exit_code: int | None) -> str | None:
    """In words, the rule by which this failure is not tried again; None when there is none."""
    if failure in retries.final_on:
        return f"failures of class {failure} are final"
    if failure not in _WITH_CODE or exit_code is None:
        return None
    if exit_code in retries.final_exit_codes:
        return f"exit code {exit_code} is final"
    if retries.only_exit_codes and exit_code not in retries.only_exit_codes:
        return f"exit code {exit_code} is none of those that are tried again"
    return None


def backoff(retries: Retries, spent: Spent, cause: Cause, chance: float) -> timedelta:
    """How long the next attempt waits: `chance` in [0, 1) makes 0.5 to 1.0 of the step, never zero.

    Preempted work waits for nothing: it was not its fault, and room decides when it runs again.
    """
    assert 0.0 <= chance < 1.0, chance
    if cause is Cause.PREEMPTION:
        return timedelta(0)
    plan = retries.backoff
    step_ms = min(plan.cap_ms, plan.base_ms * _bases(plan, max(spent.of(cause) - 1, 0)))
    return timedelta(milliseconds=max(1.0, step_ms * (0.5 + chance / 2)))


def _bases(plan: Backoff, before: int) -> int:
    """How many bases the step is that follows so many others; bounded, for a cap comes after."""
    before = min(before, _EXPONENT_MAX)
    match plan.growth:
        case Growth.CONSTANT:
            return 1
        case Growth.EXPONENTIAL:
            return int(plan.factor**before)
        case Growth.FIBONACCI:
            step, following = 1, 1
            for _ in range(before):
                step, following = following, step + following
            return step
