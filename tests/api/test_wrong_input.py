"""Wrong input answers clearly, names the field and the limit, and leaves nothing behind."""

import json
from typing import Any
from uuid import uuid4

import httpx
import pytest

from domain.protocol import Offer
from domain.task import ENV_VALUE_BYTES_MAX
from tests.api.conftest import Desk

LONG = "x" * 1_000


def body(**changes: Any) -> dict[str, Any]:
    return {"id": f"t-{uuid4().hex}", "command": ["true"], **changes}


async def post_raw(desk: Desk, raw: bytes) -> httpx.Response:
    return await desk.http.post("/v1/tasks", content=raw)


@pytest.mark.parametrize(
    "name",
    ["", LONG, "naïve", "🧱", "شجرة", "a/b", "a\nb", "a\n", "-a", "a-", " a", "a b", "a\0b", ".."],
)
@pytest.mark.parametrize("field", ["id", "team"])
async def test_a_name_that_is_none_is_refused_at_submit(desk: Desk, field: str, name: str) -> None:
    answer = await desk.http.post("/v1/tasks", json=body(**{field: name}))
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["field"] == field


@pytest.mark.parametrize(("field", "chars"), [("id", 63), ("id", 64), ("id", 200), ("team", 63)])
async def test_a_long_legal_name_runs(desk: Desk, field: str, chars: int) -> None:
    stem = uuid4().hex
    name = stem + "x" * (chars - len(stem))
    answer = await desk.http.post("/v1/tasks", json=body(**{field: name}))
    assert answer.status_code == 201, answer.text
    task = answer.json()
    ended = await desk.ended(f"/v1/tasks/{task['team']}/{task['id']}")
    assert ended["phase"] == "SUCCEEDED"


@pytest.mark.parametrize(("field", "chars"), [("id", 201), ("id", 253), ("team", 64)])
async def test_a_name_above_the_limit_is_told_the_limit(desk: Desk, field: str, chars: int) -> None:
    answer = await desk.http.post("/v1/tasks", json=body(**{field: "x" * chars}))
    assert answer.status_code == 422
    assert str({"id": 200, "team": 63}[field]) in answer.text


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ('{"cpu": -1}', "cpu"),
        ('{"cpu": 0}', "cpu"),
        ('{"memory": "0"}', "memory"),
        ('{"cpu": NaN}', "cpu"),
        ('{"cpu": 1e309}', "cpu"),
        ('{"cpu": -1e309}', "cpu"),
        ('{"cpu": "lots"}', "cpu"),
        ('{"cpu": [1]}', "cpu"),
        ('{"memory": "1Gi", "memory_mib": 1}', "memory"),
        ('{"memory": "999999999999Ti"}', "memory"),
        ('{"cpu_milli": 1e309}', "cpu_milli"),
        ('{"cpu_milli": 1.5}', "cpu_milli"),
        ('{"gpu": -1}', "gpu"),
        ('{"gpu": true}', "gpu"),
        ('{"cpus": 1}', "cpus"),
        ('{"extra": {"licence": -1}}', "licence"),
    ],
)
async def test_a_resource_that_is_none_is_refused(desk: Desk, raw: str, word: str) -> None:
    answer = await post_raw(desk, b'{"command": ["true"], "resources": %s}' % raw.encode())
    assert answer.status_code == 422, answer.text
    assert word in answer.json()["detail"]


@pytest.mark.parametrize(("written", "mib"), [("1Gi", 1024), ("1G", 954), ("512Mi", 512), (1, 1)])
async def test_quantities_come_back_in_base_units(desk: Desk, written: Any, mib: int) -> None:
    answer = await desk.submit(resources={"cpu": "500m", "memory": written})
    assert answer.status_code == 201, answer.text
    resources = answer.json()["spec"]["resources"]
    assert (resources["cpu_milli"], resources["memory_mib"]) == (500, mib)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"command": ["tr',
        b"\xff\xfe",
        b'{"command": ["\xff"]}',
        b'{"command": ["\\ud800"]}',
        b"[" * 10_000,
        b'{"command": ["true"], "run_timeout_s": ' + b"9" * 5_000 + b"}",
    ],
)
async def test_what_is_not_json_is_refused(desk: Desk, raw: bytes) -> None:
    answer = await post_raw(desk, raw)
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ('{"command": ["false"], "command": ["true"]}', "command"),
        ('{"command": ["true"], "resources": {"cpu": 1, "cpu": 2}}', "resources.cpu"),
    ],
)
async def test_a_key_that_stands_twice_is_refused_and_named(
    desk: Desk, raw: str, named: str
) -> None:
    answer = await post_raw(desk, raw.encode())
    assert (answer.status_code, answer.json()["code"]) == (400, "unreadable")
    assert answer.json()["detail"].startswith(f"{named}: stands twice")


@pytest.mark.parametrize("raw", [b"[]", b"null", b'"true"', b"1", b"{}"])
async def test_json_that_is_no_submission_is_refused(desk: Desk, raw: bytes) -> None:
    answer = await post_raw(desk, raw)
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"comand": ["true"]}, "comand"),
        ({"command": []}, "command"),
        ({"command": [""]}, "command"),
        ({"command": ["a\0b"]}, "command"),
        ({"command": "true"}, "command"),
        ({"priority": "URGENT"}, "priority"),
        ({"priority": 7}, "priority"),
        ({"env": {"1A": "x"}}, "env"),
        ({"env": {"DRYSTONE_X": "x"}}, "env"),
        ({"env": {"A": 1}}, "env"),
        ({"run_timeout_s": 0}, "run_timeout_s"),
        ({"grace_s": -1}, "grace_s"),
        ({"retries": {"failures": 1_001}}, "retries"),
        ({"constraints": {"labels": [{"key": "a", "operator": "~"}]}}, "constraints"),
        ({"constraints": {"max_per_machine": 1}}, "constraints"),
        ({"on_loss": "never"}, "on_loss"),
    ],
)
async def test_a_field_that_does_not_fit_is_named(
    desk: Desk, change: dict[str, Any], field: str
) -> None:
    answer = await desk.submit(**change)
    assert answer.status_code == 422, answer.text
    assert any(field in error["field"] for error in answer.json()["errors"])


async def test_an_environment_value_above_the_limit_is_told_the_limit(desk: Desk) -> None:
    answer = await desk.submit(env={"A": "x" * (128 * 1024)})
    assert answer.status_code == 422
    assert str(ENV_VALUE_BYTES_MAX) in answer.text
    assert "xxxx" not in answer.text


@pytest.mark.parametrize("chars", [256, 100_000])
async def test_a_long_environment_value_is_kept_as_it_is(desk: Desk, chars: int) -> None:
    value = "é" + "x" * (chars - 2) + "\n"
    answer = await desk.submit(env={"A": value})
    assert answer.status_code == 201
    task = answer.json()
    await desk.ended(f"/v1/tasks/default/{task['id']}")
    read = await desk.http.get(f"/v1/tasks/default/{task['id']}")
    assert read.json()["spec"]["env"]["A"] == value
    attempt = next(one for one in desk.agent.ran if task["id"] in one)
    offers = [order for order in desk.agent.orders if isinstance(order, Offer)]
    offer = next(o for o in offers if f"{o.key}#{o.number}" == attempt)
    assert offer.spec.env["A"] == value


@pytest.mark.parametrize("size", [256 * 1024 + 1, 1_000_000, 12_000_000])
async def test_a_body_above_the_limit_is_told_the_limit(desk: Desk, size: int) -> None:
    answer = await post_raw(desk, json.dumps(body(env={"A": "x" * size})).encode())
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"
    assert str(256 * 1024) in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/tasks/default/a%2Fb", 404),
        ("/v1/tasks/default/-a", 422),
        ("/v1/tasks/default/none-such", 404),
        ("/v1/tasks/none-such/none-such/logs", 404),
        ("/v1/tasks?limit=0", 422),
        ("/v1/tasks?limit=1001", 422),
        ("/v1/tasks?phase=GONE", 422),
        ("/v1/tasks?priority=URGENT", 422),
        ("/v1/tasks?cursor=nonsense", 422),
        ("/v1/tasks?cursor=eyJhIjoxfQ==", 422),
        ("/v1/tasks?team=%00", 422),
        ("/v1/tasks/default/a?wait=forever", 422),
        ("/v1/tasks/default/a?wait=61s", 422),
        ("/v1/tasks/default/a/logs?stream=stdin", 422),
        ("/v1/tasks/default/a/logs?offset=1", 422),
        ("/v1/machines/none/none", 404),
        ("/v1/clusters/none", 404),
        ("/nothing", 404),
    ],
)
async def test_a_question_that_does_not_fit_is_refused(desk: Desk, path: str, status: int) -> None:
    answer = await desk.http.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


async def test_a_method_that_is_none_is_refused(desk: Desk) -> None:
    answer = await desk.http.put("/v1/tasks", json=body())
    assert answer.status_code == 405
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["allow"] == "GET, POST"
    assert answer.json()["detail"] == "/v1/tasks does not answer PUT, but GET, POST"


@pytest.mark.parametrize("path", ["/nothing", "/v1/tasks/a/b/c/explain", "/v1/tasks/default/a%2Fb"])
async def test_a_path_where_nothing_is_is_named(desk: Desk, path: str) -> None:
    told = (await desk.http.get(path)).json()
    assert (told["code"], told["type"]) == ("not_found", "about:blank")
    assert told["detail"].startswith(f"there is nothing at {path.replace('%2F', '/')};")


async def test_what_was_refused_left_nothing(desk: Desk) -> None:
    name = f"t-{uuid4().hex}"
    refused = await desk.http.post("/v1/tasks", json=body(id=name, grace_s=-1))
    assert refused.status_code == 422
    accepted = await desk.http.post("/v1/tasks", json=body(id=name))
    assert accepted.status_code == 201
