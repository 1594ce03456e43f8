"""What a submission may say: names, quantities, environment; every refusal names the field."""

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from domain.ids import task_id_of_key, task_workflow_id
from domain.task import (
    COMMAND_BYTES_MAX,
    DEFAULT_RESOURCES,
    ENV_VALUE_BYTES_MAX,
    SubmitTask,
    TaskSpec,
    body_digest,
)
from tests.domain.builders import a_spec

BODY = {"team": "blue", "id": "t1", "command": ["/bin/true"]}


def _refused(**changes: Any) -> tuple[str, str]:
    """Field and text of the first error of a refused submission."""
    with pytest.raises(ValidationError) as caught:
        SubmitTask.model_validate({**BODY, **changes})
    error = caught.value.errors()[0]
    return ".".join(str(part) for part in error["loc"]), error["msg"]


# --- names (L86) ------------------------------------------------------------------------------

NO_NAMES = {
    "empty": "",
    "253": "a" * 253,
    "1000": "a" * 1000,
    "unicode": "höhle",
    "emoji": "task-🪨",
    "rtl": "משימה",
    "rtl mark": "a\u200fb",
    "slash": "a/b",
    "newline": "a\nb",
    "newline at the end": "ab\n",
    "leading dash": "-ab",
    "trailing dash": "ab-",
    "dots alone": "..",
    "space": "a b",
    "nul": "a\0b",
    "arabic digit": "a١",
    "long s": "aſ",
}


@pytest.mark.parametrize("name", NO_NAMES.values(), ids=NO_NAMES.keys())
@pytest.mark.parametrize("field", ["team", "id"])
def test_a_name_that_does_not_fit_is_refused_at_submit(field, name):
    assert _refused(**{field: name})[0] == field


@pytest.mark.parametrize("name", ["a", "0", "a" * 63, "A.b_c-9"])
@pytest.mark.parametrize("field", ["team", "id"])
def test_a_name_that_fits_is_kept_as_it_is(field, name):
    spec = SubmitTask.model_validate({**BODY, field: name})
    assert getattr(spec, field) == name
    assert task_workflow_id(spec.key) == f"task/{spec.team}/{spec.id}"


def test_the_limits_of_names_are_63_for_a_team_and_200_for_a_task():
    assert SubmitTask.model_validate({**BODY, "team": "a" * 63, "id": "b" * 200})
    assert "63" in _refused(team="a" * 64)[1]
    assert "200" in _refused(id="b" * 201)[1]


@pytest.mark.parametrize("key", [*NO_NAMES.values(), "a" * 201])
def test_any_idempotency_key_becomes_a_legal_id_and_always_the_same(key):
    made = task_id_of_key(key)
    assert made == task_id_of_key(key)
    assert SubmitTask.model_validate({**BODY, "id": made}).id == made


def test_a_legal_idempotency_key_is_its_own_id_and_others_do_not_meet():
    assert task_id_of_key("nightly-7") == "nightly-7"
    assert len({task_id_of_key(key) for key in NO_NAMES.values()}) == len(NO_NAMES)


# --- quantities -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cpu", [-1, "-1", math.nan, "NaN", math.inf, 1e309, "1Xi", "", "1e309", "1 G", True, [], None]
)
def test_a_cpu_that_is_no_quantity_is_refused(cpu):
    field, text = _refused(resources={"cpu": cpu})
    assert field == "resources"
    assert "cpu" in text


def test_numbers_too_large_for_json_are_refused():
    with pytest.raises(ValidationError):
        SubmitTask.model_validate_json(json.dumps({**BODY, "resources": {"cpu": math.inf}}))
    with pytest.raises(ValidationError):
        SubmitTask.model_validate_json('{"id":"t","command":["x"],"resources":{"cpu":1e309}}')
    assert "at most 2147483647" in _refused(resources={"cpu": "1Gi"})[1]


@pytest.mark.parametrize(
    ("written", "mib"),
    [("1Gi", 1024), ("1G", 954), ("512Mi", 512), ("0.5Gi", 512), (1, 1), ("1", 1), (2**20, 1)],
)
def test_memory_is_bytes_rounded_up_to_mib(written, mib):
    spec = SubmitTask.model_validate({**BODY, "resources": {"memory": written}})
    assert spec.resources.memory_mib == mib


@pytest.mark.parametrize(
    ("written", "milli"), [("500m", 500), (2, 2000), (0.25, 250), ("1.5", 1500)]
)
def test_cpu_is_cores_and_500m_is_half_of_one(written, milli):
    spec = SubmitTask.model_validate({**BODY, "resources": {"cpu": written}})
    assert spec.resources.cpu_milli == milli


@pytest.mark.parametrize("asked", [{"cpu": 0}, {"cpu_milli": 0}, {"cpu": "0m"}])
def test_a_task_must_ask_for_some_cpu(asked):
    assert "cpu must be at least 1m" in _refused(resources=asked)[1]


@pytest.mark.parametrize("asked", [{"memory": 0}, {"memory_mib": 0}])
def test_a_task_must_ask_for_some_memory(asked):
    assert "memory must be at least 1Mi" in _refused(resources=asked)[1]


def test_cpu_and_memory_that_are_left_out_have_defaults():
    assert a_spec().resources == DEFAULT_RESOURCES
    only_cpu = a_spec(resources={"cpu": 4}).resources
    assert (only_cpu.cpu_milli, only_cpu.memory_mib) == (4000, DEFAULT_RESOURCES.memory_mib)


def test_one_resource_is_named_once():
    assert "name the same resource" in _refused(resources={"cpu": 1, "cpu_milli": 1000})[1]


@pytest.mark.parametrize("amount", [-1, 1.5, "3", True, 2**31])
def test_an_extra_resource_is_a_whole_number(amount):
    assert _refused(resources={"extra": {"fpga": amount}})[0] == "resources.extra.fpga"


@pytest.mark.parametrize("written", [-1, 1.5, "x", math.nan])
def test_integers_of_a_task_are_integers(written):
    assert _refused(queue_timeout_s=written)[0] == "queue_timeout_s"


# --- environment and command (L88) ------------------------------------------------------------


@pytest.mark.parametrize("size", [256, 100_000, ENV_VALUE_BYTES_MAX])
def test_a_long_environment_value_is_kept_intact(size):
    value = "x" * size
    spec = SubmitTask.model_validate({**BODY, "env": {"LONG": value}})
    assert TaskSpec.model_validate_json(spec.model_dump_json()).env == {"LONG": value}


@pytest.mark.parametrize("value", ["x" * 128 * 1024, "ö" * 100_000])
def test_an_environment_value_that_linux_would_refuse_names_the_limit(value):
    field, text = _refused(env={"LONG": value})
    assert (field, "LONG" in text, str(ENV_VALUE_BYTES_MAX) in text) == ("env", True, True)


@pytest.mark.parametrize("name", ["", "A-B", "1A", "A=B", "A\n", "x" * 201, "Ä"])
def test_an_environment_name_is_a_shell_name(name):
    assert _refused(env={name: "1"})[0].startswith("env")


def test_names_of_ours_are_not_for_the_user():
    assert "set by Drystone" in _refused(env={"DRYSTONE_ATTEMPT": "7"})[1]


@pytest.mark.parametrize("text", ["a\0b"])
def test_nul_is_refused_wherever_linux_would_cut(text):
    assert _refused(command=["echo", text])[0].startswith("command")
    assert _refused(env={"A": text})[0].startswith("env")
    assert _refused(working_dir=text)[0] == "working_dir"


@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "./../x", "a/b/../../.."])
def test_a_relative_working_folder_that_leaves_the_attempts_own_is_refused(path):
    field, message = _refused(working_dir=path)
    assert field == "working_dir"
    assert "inside the attempt's folder" in message


@pytest.mark.parametrize("path", ["a/../b", "a/..", "..a/..b", ".", "/srv/../data", None])
def test_a_working_folder_may_be_anywhere_else(path):
    assert SubmitTask.model_validate({**BODY, "working_dir": path}).working_dir == path


def test_a_working_folder_that_left_is_still_read_where_it_was_taken_before():
    assert TaskSpec.model_validate({**BODY, "working_dir": "../x"}).working_dir == "../x"


def test_a_command_has_a_first_word_and_no_word_too_long():
    assert _refused(command=[])[0] == "command"
    assert "first word" in _refused(command=[""])[1]
    assert str(COMMAND_BYTES_MAX) in _refused(command=["x", "y" * (COMMAND_BYTES_MAX + 1)])[1]


# --- doors ------------------------------------------------------------------------------------


def test_unknown_fields_are_forbidden_at_the_door_and_tolerated_inside():
    assert _refused(comand=["x"]) == ("comand", "Extra inputs are not permitted")
    assert TaskSpec.model_validate({**BODY, "field_of_tomorrow": 1}) == a_spec()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"resources": {"cpus": 1}}, "resources.cpus"),
        ({"retries": {"backoff": {"base": 1}}}, "retries.backoff.base"),
        ({"constraints": {"labels": [{"key": "a", "value": "b"}]}}, "constraints.labels.value"),
    ],
)
def test_a_misspelt_field_is_found_at_any_depth(given, named):
    assert named in _refused(**given)[1]
    TaskSpec.model_validate({**BODY, "resources": {"cpu": 1, "cpus": 1}})


def test_every_field_as_we_write_it_is_known_at_the_door():
    spec = a_spec(constraints={"labels": [{"key": "a", "values": ["b"]}]}, env={"A": "1"})
    assert SubmitTask.model_validate(spec.model_dump(mode="json")).key == spec.key


def test_the_digest_is_of_the_meaning_and_not_of_the_writing():
    one = SubmitTask.model_validate({**BODY, "resources": {"cpu": "500m", "memory": "1Gi"}})
    other = TaskSpec.model_validate({**BODY, "resources": {"cpu": 0.5, "memory_mib": 1024}})
    assert body_digest(one) == body_digest(other)
    assert body_digest(one) != body_digest(a_spec(resources={"cpu": "501m", "memory": "1Gi"}))
    swapped = [a_spec(env={"A": "1", "B": "2"}), a_spec(env={"B": "2", "A": "1"})]
    assert body_digest(swapped[0]) == body_digest(swapped[1])


def test_a_band_is_written_by_name():
    assert a_spec(priority="high").priority == 100
    assert "CRITICAL" in _refused(priority="urgent")[1]
