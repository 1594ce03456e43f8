"""Peer cases about retries: whether and when a failed attempt is followed by another.

`make cases CASES=folder`. Attempts of earlier intervals count here as well: all cases that are
asked have theirs inside of the interval, which is looked at.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from domain.aftermath import what_follows
from domain.attempt import Ending, EndKind
from domain.claims import Requeue, Then
from domain.reasons import Reason
from domain.retry import Spent
from tests.cases.asking import Case, parametrize
from tests.domain.builders import a_spec, a_state

TOPICS = {"next_attempt": "reschedule_backoff", "should_retry": "reschedule_backoff"}
DECISION = Path(__file__).parents[2] / "docs/decisions/0043-peer-cases-of-retries.md"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONGEST = 1 - 2**-53
CAP_S_MAX = 86_400


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, TOPICS, {}, DECISION)


def test_next_attempt(case: Case) -> None:
    then = _asked(case["given"])
    if not case["expect"]["allowed"]:
        assert not isinstance(then, Requeue)
        return
    assert isinstance(then, Requeue)
    wait_s = (then.not_before - NOW).total_seconds()
    assert round(wait_s, 3) == case["expect"]["next_at_s"]


def test_should_retry(case: Case) -> None:
    assert isinstance(_asked(case["given"]), Requeue) == case["expect"]["retry"]


def _asked(given: dict[str, Any]) -> Then:
    policy, earlier = given["policy"] or {}, given["earlier_attempts"]
    interval_s = policy.get("interval_s")
    assert interval_s is None or all(-interval_s < one["at_s"] for one in earlier)
    failures = "unlimited" if policy.get("unlimited") else policy.get("attempts", 0)
    grown = {
        "growth": policy.get("delay_kind", "exponential"),
        "base_ms": policy.get("delay_s", 1) * 1_000,
        "cap_ms": policy.get("max_delay_s", CAP_S_MAX) * 1_000,
    }
    spec = a_spec(retries={"failures": failures, "backoff": grown})
    state = a_state(spec=spec, spent=Spent(failures=len(earlier)))
    ending = Ending(kind=EndKind.EXITED, exit_code=0)
    if given["state"] == "failed":
        ending = Ending(kind=EndKind.EXITED, exit_code=1, reason=Reason.NONZERO_EXIT)
    at = NOW + timedelta(seconds=given["failed_at_s"])
    then, _ = what_follows(state, len(earlier) + 1, ending, at, LONGEST)
    return then
