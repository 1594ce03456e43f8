"""Which failures are tried again, and how the steps between attempts grow."""

from typing import Any

import pytest
from pydantic import ValidationError

from domain.attempt import Ending, Phase, StopCause
from domain.attempt import EndKind as Kind
from domain.reasons import Reason
from domain.retry import Cause, FailureClass, Retries, Spent, backoff
from domain.task import TaskSpec, body_digest
from tests.domain.builders import FREE, Story, a_spec, exited, lost, stopped

TOP = 1 - 2**-53
"""The chance that makes a wait as long as its step."""


@pytest.mark.parametrize(
    ("ending", "failure"),
    [
        (Ending(kind=Kind.EXITED, exit_code=0), None),
        (
            Ending(kind=Kind.EXITED, exit_code=3, reason=Reason.NONZERO_EXIT),
            FailureClass.EXIT,
        ),
        (
            Ending(kind=Kind.EXITED, exit_code=137, reason=Reason.KILLED_BY_SIGNAL),
            FailureClass.SIGNAL,
        ),
        (Ending(kind=Kind.EXITED, reason=Reason.NO_SUCH_COMMAND), FailureClass.START),
        (
            Ending(kind=Kind.STOPPED, stop_cause=StopCause.RUN_TIMEOUT, exit_code=143),
            FailureClass.TIMEOUT,
        ),
        (Ending(kind=Kind.STOPPED, stop_cause=StopCause.PREEMPT, exit_code=143), None),
        (Ending(kind=Kind.LOST), None),
        (Ending(kind=Kind.REFUSED), None),
    ],
)
def test_only_what_the_user_pays_for_has_a_class(
    ending: Ending, failure: FailureClass | None
) -> None:
    assert ending.failure == failure


@pytest.mark.parametrize(
    ("rules", "code", "detail"),
    [
        ({"final_exit_codes": [3, 4]}, 3, "exit code 3 is final"),
        ({"final_exit_codes": [3, 4]}, 5, None),
        (
            {"only_exit_codes": [75]},
            3,
            "exit code 3 is none of those that are tried again",
        ),
        ({"only_exit_codes": [75]}, 75, None),
        ({"final_exit_codes": [75], "only_exit_codes": [75]}, 75, "exit code 75 is final"),
        ({"final_on": ["exit"]}, 75, "failures of class exit are final"),
        ({"final_on": ["signal", "timeout", "start"]}, 75, None),
    ],
)
def test_a_final_failure_ends_the_task_and_says_by_which_rule(
    rules: dict[str, Any], code: int, detail: str | None
) -> None:
    task = Story(retries={"failures": 5, **rules}).hears(FREE).settles(exited(1, code))
    assert task.phase is (Phase.PENDING if detail is None else Phase.FAILED)
    if detail is not None:
        assert (task.outcome.reason, task.outcome.exit_code) == (Reason.NONZERO_EXIT, code)
        assert task.outcome.detail == detail


def test_the_code_of_a_stopped_attempt_is_not_looked_at() -> None:
    """It is what the stop signal made of it."""
    task = Story(retries={"failures": 1, "final_exit_codes": [143]}).hears(FREE)
    assert task.settles(stopped(1, StopCause.RUN_TIMEOUT, 143)).phase is Phase.PENDING


def test_what_is_not_the_users_failure_is_never_final_by_these_rules() -> None:
    task = Story(retries={"final_on": list(FailureClass), "only_exit_codes": [1]}).hears(FREE)
    assert task.settles(lost(1)).phase is Phase.PENDING
    assert task.settles(stopped(2, StopCause.PREEMPT, 143)).phase is Phase.PENDING


def test_an_unlimited_budget_never_ends_a_task() -> None:
    task = Story(retries={"failures": "unlimited"}).hears(FREE)
    for number in range(1, 1_050):
        assert task.settles(exited(number, 1)).phase is Phase.PENDING


@pytest.mark.parametrize(
    ("growth", "steps_s"),
    [
        ("constant", [5, 5, 5, 5, 5, 5, 5]),
        ("exponential", [5, 10, 20, 40, 50, 50, 50]),
        ("fibonacci", [5, 5, 10, 15, 25, 40, 50]),
    ],
)
def test_the_steps_grow_as_asked_up_to_the_cap(growth: str, steps_s: list[int]) -> None:
    plan = {"growth": growth, "base_ms": 5_000, "cap_ms": 50_000}
    retries = Retries.model_validate({"backoff": plan})
    for ended, step_s in enumerate(steps_s, 1):
        spent = Spent(failures=ended)
        longest = backoff(retries, spent, Cause.FAILURE, TOP).total_seconds()
        shortest = backoff(retries, spent, Cause.FAILURE, 0.0).total_seconds()
        assert (round(longest, 6), shortest) == (step_s, step_s / 2)
    many = backoff(retries, Spent(failures=100_000), Cause.FAILURE, TOP)
    assert round(many.total_seconds(), 6) == steps_s[-1]


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({"final_exit_codes": [0]}, "final_exit_codes"),
        ({"only_exit_codes": [256]}, "only_exit_codes"),
        ({"final_on": ["never"]}, "final_on"),
        ({"failures": "many"}, "failures"),
        ({"failures": 1_001}, "failures"),
        ({"failures": -1}, "failures"),
        ({"failures": 0.5}, "failures"),
        ({"failures": None}, "failures"),
        ({"backoff": {"growth": "linear"}}, "growth"),
    ],
)
def test_a_rule_that_is_none_is_refused_by_its_name(rules: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TaskSpec.model_validate({"id": "a", "command": ["true"], "retries": rules})
    (error,) = refused.value.errors()
    assert field in (error["loc"][-1], error["loc"][-2])


def test_rules_change_the_digest_only_where_they_are_given() -> None:
    plain = body_digest(a_spec())
    assert body_digest(a_spec(retries={"backoff": {"growth": "exponential"}})) == plain
    asked: list[dict[str, Any]] = [
        {"final_on": ["start"]},
        {"final_exit_codes": [3]},
        {"only_exit_codes": [3]},
        {"backoff": {"growth": "constant"}},
        {"failures": "unlimited"},
    ]
    assert len({plain, *(body_digest(a_spec(retries=rules)) for rules in asked)}) == 6
