"""What does not fit is told in our own words: what is allowed, and what was given."""

from typing import Any

import pytest
from pydantic import ValidationError

from domain.misfit import PATTERNS, in_a_line, misfits, told
from domain.task import SubmitTask, TaskSpec, body_digest


def refused(**fields: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        SubmitTask.model_validate({"id": "a", "command": ["true"], **fields})
    return caught.value


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"command": "true"}, 'command: must be a list, not "true"'),
        ({"command": []}, "command: must not be empty"),
        ({"command": [1]}, "command[0]: must be text, not 1"),
        ({"comand": ["x"]}, "comand: is not known here"),
        (
            {"resources": {"cpu": "lots"}},
            (
                "resources: cpu: must be a number of at least 0 with a"
                ' suffix of m, k, M, G, T, Ki, Mi, Gi, Ti, not "lots"'
            ),
        ),
        ({"resources": 1}, "resources: must be an object, not 1"),
        ({"run_timeout_s": 0}, "run_timeout_s: must be at least 1, not 0"),
        ({"grace_s": 3601}, "grace_s: must be at most 3600, not 3601"),
        ({"grace_s": "soon"}, 'grace_s: must be a whole number, not "soon"'),
        ({"grace_s": 1.5}, "grace_s: must be a whole number, not 1.5"),
        (
            {"accept_late_success": "perhaps"},
            ('accept_late_success: must be true or false, not "perhaps"'),
        ),
        (
            {"on_loss": "never"},
            ('on_loss: must be one of replace_after_fence, wait, replace_at_once, not "never"'),
        ),
        (
            {"priority": 7},
            ("priority: must be one of CRITICAL, HIGH, NORMAL, LOW, PREEMPTIBLE, not 7"),
        ),
        ({"team": "a" * 64}, "team: must have at most 63 characters, not a text of 64 characters"),
        (
            {"id": "a b"},
            (
                "id: must be made of letters, digits, '.', '_' and '-', with a letter or"
                ' digit at either end, not "a b"'
            ),
        ),
        (
            {"env": {"1A": "x"}},
            (
                "env.1A: the name must be made of letters, digits and '_', not"
                " beginning with a digit"
            ),
        ),
    ],
)
def test_a_field_is_named_with_what_is_allowed_and_what_was_given(
    fields: dict[str, Any], words: str
) -> None:
    assert told(refused(**fields)) == words


def test_what_is_long_or_inside_is_not_shown() -> None:
    assert "secret" not in told(refused(env=["secret"], command={"secret": "x"}))
    assert "yyyy" not in told(refused(grace_s="y" * 1_000))


def test_more_than_three_are_counted() -> None:
    many = {f"field{n}": 1 for n in range(5)}
    line = in_a_line(misfits(refused(**many).errors()))
    assert line.endswith("; and 2 more")


def test_people_may_call_a_field_otherwise() -> None:
    assert told(refused(grace_s=-1), {"grace_s": "--grace"}).startswith("--grace: must be at least")


def test_every_pattern_of_a_submission_has_words() -> None:
    found: set[str] = set()

    def look(part: Any) -> None:
        if isinstance(part, dict):
            found.update(v for k, v in part.items() if k == "pattern" and isinstance(v, str))
            found.update(k for k in part.get("patternProperties", {}))
            for value in part.values():
                look(value)
        elif isinstance(part, list):
            for value in part:
                look(value)

    look(SubmitTask.model_json_schema())
    assert found
    assert found - set(PATTERNS) == set()


def test_a_band_is_echoed_by_its_name_and_means_the_same() -> None:
    one = TaskSpec.model_validate({"id": "a", "command": ["true"], "priority": 100})
    assert one.model_dump(mode="json")["priority"] == "HIGH"
    again = TaskSpec.model_validate_json(one.model_dump_json())
    assert again == one
    # As stored by releases that echoed the number.
    assert body_digest(again) == "d1ee8d8961ae1bfe1153902e20a9e16d"


def test_rules_that_came_later_change_no_digest_of_before() -> None:
    rules = {"service": "web", "max_per_machine": 1, "labels": [{"key": "disk", "values": ["ssd"]}]}
    body = {"id": "a", "team": "red", "command": ["true"], "constraints": rules}
    before = TaskSpec.model_validate(body)
    assert body_digest(before) == "7a1f02f806d9c2bfe36dbdff563c427d"
    rules["limits"] = [{"over": "rack"}]
    assert body_digest(TaskSpec.model_validate(body)) != body_digest(before)
