"""A submission is accepted once per key, whatever the network does, or refused with a reason."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.api.conftest import Desk, until


def fresh() -> str:
    return f"t-{uuid4().hex}"


async def test_a_task_runs_and_its_end_is_waited_for(desk: Desk) -> None:
    name = fresh()
    answer = await desk.submit(id=name, team="blue", priority="HIGH")
    assert answer.status_code == 201
    assert answer.json()["phase"] == "PENDING"
    task = await desk.ended(f"/v1/tasks/blue/{name}")
    assert (task["phase"], task["number"], task["outcome"]["exit_code"]) == ("SUCCEEDED", 1, 0)


async def test_a_task_without_an_id_is_given_one(desk: Desk) -> None:
    answers = [await desk.http.post("/v1/tasks", json={"command": ["true"]}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["id"] != answers[1].json()["id"]


async def test_50_parallel_submissions_with_one_key_are_one_task(desk: Desk) -> None:
    name = fresh()
    answers = await asyncio.gather(*(desk.submit(id=name) for _ in range(50)))
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [201]
    assert {answer.json()["key"] for answer in answers} == {f"default/{name}"}
    await desk.ended(f"/v1/tasks/default/{name}")
    assert len([one for one in desk.agent.ran if f"/{name}#" in one]) == 1


@pytest.mark.parametrize("key", ["order-17", "any text at all, 100 %", "x" * 1_000, "ключ"])
async def test_a_header_may_carry_the_key(desk: Desk, key: str) -> None:
    team = f"team-{uuid4().hex}"
    headers = {b"Idempotency-Key": key.encode()}
    bodies = [{"command": ["true"], "team": team} for _ in range(2)]
    answers = [await desk.http.post("/v1/tasks", json=one, headers=headers) for one in bodies]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json()["id"] == answers[1].json()["id"]


async def test_key_and_id_must_agree(desk: Desk) -> None:
    body = {"command": ["true"], "id": fresh()}
    headers = {"Idempotency-Key": fresh()}
    assert (await desk.http.post("/v1/tasks", json=body, headers=headers)).status_code == 422
    headers = {"Idempotency-Key": str(body["id"])}
    assert (await desk.http.post("/v1/tasks", json=body, headers=headers)).status_code == 201
    headers = {"Idempotency-Key": ""}
    assert (await desk.http.post("/v1/tasks", json=body, headers=headers)).status_code == 422


async def test_the_same_key_with_another_body_is_a_conflict(desk: Desk) -> None:
    name = fresh()
    assert (await desk.submit(id=name, command=["sleep", "9"])).status_code == 201
    for _ in range(2):
        answer = await desk.submit(id=name, command=["sleep", "10"])
        assert answer.status_code == 409
        assert answer.json()["code"] == "conflict"
    await desk.http.post(f"/v1/tasks/default/{name}/cancel")
    assert (await desk.ended(f"/v1/tasks/default/{name}"))["phase"] == "CANCELLED"
    # Also once it has ended, and for the same body too.
    assert (await desk.submit(id=name, command=["sleep", "10"])).status_code == 409
    again = await desk.submit(id=name, command=["sleep", "9"])
    assert (again.status_code, again.json()["phase"]) == (200, "CANCELLED")


async def test_a_body_that_means_the_same_is_the_same(desk: Desk) -> None:
    name = fresh()
    first = await desk.submit(id=name, resources={"cpu": "1", "memory": "1Gi"}, priority="low")
    second = await desk.submit(id=name, resources={"cpu": 1.0, "memory": "1024Mi"}, priority=300)
    assert (first.status_code, second.status_code) == (201, 200)


async def test_a_retry_after_a_lost_answer_finds_the_same_task(desk: Desk) -> None:
    name = fresh()
    body = {"command": ["true"], "id": name}

    async def dropping(scope: Scope, receive: Receive, send: Send) -> None:
        async def lost(message: Message) -> None:
            raise ConnectionResetError("the network is gone")

        await desk.app(scope, receive, lost)

    transport = httpx.ASGITransport(dropping)
    async with httpx.AsyncClient(transport=transport, base_url="http://drystone") as cut:
        with pytest.raises(ConnectionResetError):
            await cut.post("/v1/tasks", json=body)
    again = await desk.http.post("/v1/tasks", json=body)
    assert (again.status_code, again.json()["id"]) == (200, name)
    await desk.ended(f"/v1/tasks/default/{name}")
    assert len([one for one in desk.agent.ran if f"/{name}#" in one]) == 1


async def test_what_no_machine_could_ever_hold_is_refused_with_reasons(desk: Desk) -> None:
    name = fresh()
    answer = await desk.submit(id=name, resources={"cpu": "65", "memory": "1Gi"})
    assert answer.status_code == 422
    problem = answer.json()
    assert (problem["code"], problem["lost"]) == ("never_fits", {"no_room_cpu": 1})
    assert "64000 < 65000" in problem["detail"]
    # Nothing was made: the name is still free.
    assert (await desk.http.get(f"/v1/tasks/default/{name}")).status_code == 404
    assert (await desk.submit(id=name)).status_code == 201


async def test_what_only_has_no_room_now_waits_and_says_why(desk: Desk) -> None:
    team = f"team-{uuid4().hex[:20]}"
    whole = {"cpu": "64", "memory": "1Gi"}
    first = (await desk.submit(team=team, command=["sleep", "1"], resources=whole)).json()
    second = (await desk.submit(team=team, command=["sleep", "1"], resources=whole)).json()
    tasks = {task["id"]: task for task in (first, second)}
    waiting: list[dict[str, Any]] = []

    async def one_waits_for_room() -> bool:
        asked = [await desk.http.get(f"/v1/tasks/{team}/{name}/explain") for name in tasks]
        waiting[:] = [one.json() for one in asked if one.json()["phase"] == "PENDING"]
        return len(waiting) == 1 and waiting[0]["verdict"] is not None

    await until(one_waits_for_room, "one of the two is told why it waits")
    assert waiting[0]["verdict"]["verdict"]["lost"] == {"no_room_cpu": 1}
    assert "no room cpu" in waiting[0]["summary"]
    assert waiting[0]["history"]
    for name in tasks:
        await desk.http.post(f"/v1/tasks/{team}/{name}/cancel")
        assert (await desk.ended(f"/v1/tasks/{team}/{name}"))["phase"] == "CANCELLED"


async def test_a_burst_succeeds_without_a_spurious_failure(desk: Desk) -> None:
    names = [fresh() for _ in range(200)]

    async def patiently(name: str) -> int:
        answer = await desk.submit(id=name, resources={"cpu": "10m"})
        for _ in range(20):
            if answer.status_code != 503:
                break
            # A slow-down is no failure: it says so, and the same id is safe to use again.
            assert answer.headers["retry-after"]
            answer = await desk.submit(id=name, resources={"cpu": "10m"})
        return answer.status_code

    codes = await asyncio.gather(*(patiently(name) for name in names))
    assert set(codes) <= {200, 201}
    tasks = await asyncio.gather(*(desk.ended(f"/v1/tasks/default/{n}") for n in names))
    assert {task["phase"] for task in tasks} == {"SUCCEEDED"}
