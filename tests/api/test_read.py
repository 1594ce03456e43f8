"""What can be asked: lists, waits, attempts, events, machines, clusters, health, numbers."""

from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowExecutionStatus

from domain.ids import task_workflow_id
from tests.api.conftest import Desk, until


def fresh() -> str:
    return f"t-{uuid4().hex}"


async def test_a_list_is_filtered_and_paged(desk: Desk) -> None:
    team = f"team-{uuid4().hex[:20]}"
    names = [fresh() for _ in range(5)]
    for count, name in enumerate(names):
        band = "LOW" if count % 2 else "HIGH"
        assert (await desk.submit(id=name, team=team, priority=band)).status_code == 201
        await desk.ended(f"/v1/tasks/{team}/{name}")
    seen: list[str] = []
    query: dict[str, str] = {"team": team, "limit": "2"}
    page: dict[str, Any] = {}
    for _ in range(3):
        page = (await desk.http.get("/v1/tasks", params=query)).json()
        seen += [task["id"] for task in page["items"]]
        query["cursor"] = page["cursor"] or ""
    assert page["cursor"] is None
    assert seen == names[::-1]
    low = await desk.http.get("/v1/tasks", params={"team": team, "priority": "low"})
    assert [task["id"] for task in low.json()["items"]] == [names[3], names[1]]
    for filters, count in (
        ({"phase": "SUCCEEDED"}, 5),
        ({"phase": "FAILED"}, 0),
        ({"cluster": desk.agent.cluster}, 5),
        ({"cluster": "elsewhere"}, 0),
    ):
        page = (await desk.http.get("/v1/tasks", params={"team": team, **filters})).json()
        assert len(page["items"]) == count, filters


async def test_a_wait_ends_with_its_time(desk: Desk) -> None:
    name = fresh()
    await desk.submit(id=name, command=["sleep", "9"])
    answer = await desk.http.get(f"/v1/tasks/default/{name}?wait=300ms")
    assert answer.status_code == 200
    assert answer.json()["phase"] in ("PENDING", "OFFERED", "RUNNING")
    await desk.http.post(f"/v1/tasks/default/{name}/cancel")
    await desk.ended(f"/v1/tasks/default/{name}")


async def test_attempts_and_events_tell_the_story(desk: Desk) -> None:
    name = fresh()
    retries = {"failures": 1, "backoff": {"base_ms": 1}}
    await desk.submit(id=name, command=["false"], retries=retries)
    task = await desk.ended(f"/v1/tasks/default/{name}")
    assert (task["phase"], task["outcome"]["exit_code"]) == ("FAILED", 1)
    attempts = (await desk.http.get(f"/v1/tasks/default/{name}/attempts")).json()["items"]
    assert [one["number"] for one in attempts] == [1, 2]
    assert {one["ending"]["reason"] for one in attempts} == {"nonzero_exit"}
    events = (await desk.http.get(f"/v1/tasks/default/{name}/events")).json()["items"]
    kinds = [one["kind"] for one in events]
    assert kinds[0] == "enqueued"
    assert kinds[-1] == "finished"
    explained = (await desk.http.get(f"/v1/tasks/default/{name}/explain")).json()
    assert "exit code 1" in explained["summary"]


async def test_cancelling_twice_and_cancelling_what_has_ended_do_no_harm(desk: Desk) -> None:
    name = fresh()
    await desk.submit(id=name, command=["sleep", "9"])
    for _ in range(2):
        assert (await desk.http.post(f"/v1/tasks/default/{name}/cancel")).is_success
    assert (await desk.ended(f"/v1/tasks/default/{name}"))["phase"] == "CANCELLED"
    again = await desk.http.post(f"/v1/tasks/default/{name}/cancel")
    assert (again.status_code, again.json()["phase"]) == (200, "CANCELLED")
    missing = await desk.http.post("/v1/tasks/default/none-such/cancel")
    assert missing.status_code == 404


async def test_cancelling_a_task_whose_workflow_is_gone_closes_its_row(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.losses.GONE_GRACE_S", 1)
    name = fresh()
    far = {"cpu": "64", "memory": "64Gi"}
    blocker, team = fresh(), "default"
    await desk.submit(id=blocker, command=["sleep", "9"], resources={"cpu": "1"})

    async def blocked() -> bool:
        return (await desk.http.get(f"/v1/tasks/{team}/{blocker}")).json()["phase"] == "RUNNING"

    async def told_why() -> bool:
        return (await desk.http.get(f"/v1/tasks/{team}/{name}")).json()["verdict"] is not None

    await until(blocked, "the blocker runs")
    await desk.submit(id=name, resources=far)
    await until(told_why, "the other is told why it waits")
    handle = desk.temporal.get_workflow_handle(task_workflow_id(f"{team}/{name}"))
    await handle.terminate("by the test")
    assert (await handle.describe()).status is WorkflowExecutionStatus.TERMINATED
    assert (await desk.http.post(f"/v1/tasks/{team}/{name}/cancel")).status_code == 202
    task = await desk.ended(f"/v1/tasks/{team}/{name}")
    assert (task["phase"], task["outcome"]["reason"]) == ("CANCELLED", "workflow_gone")
    await desk.http.post(f"/v1/tasks/{team}/{blocker}/cancel")
    await desk.ended(f"/v1/tasks/{team}/{blocker}")


async def test_a_task_whose_workflow_was_terminated_before_its_first_step_is_cancelled(
    desk: Desk,
) -> None:
    name = fresh()
    handle = await desk.temporal.start_workflow(
        "TaskWorkflow",
        {"team": "default", "id": name, "command": ["true"]},
        id=task_workflow_id(f"default/{name}"),
        task_queue="nobody-polls-this",
    )
    await handle.terminate("by the test")
    task = await desk.ended(f"/v1/tasks/default/{name}")
    assert (task["phase"], task["outcome"]["reason"]) == ("CANCELLED", "workflow_gone")


async def test_a_machine_is_cordoned_and_uncordoned(desk: Desk) -> None:
    path = f"/v1/machines/{desk.agent.cluster}/m1"
    assert (await desk.http.get(path)).json()["cordoned"] is False
    assert (await desk.http.post(f"{path}/cordon")).json()["cordoned"] is True
    assert (await desk.http.post(f"{path}/uncordon")).json()["cordoned"] is False
    missing = await desk.http.post(f"/v1/machines/{desk.agent.cluster}/m2/cordon")
    assert missing.status_code == 404


async def test_clusters_and_the_brake_are_shown(desk: Desk) -> None:
    clusters = (await desk.http.get("/v1/clusters")).json()["items"]
    assert desk.agent.cluster in [cluster["name"] for cluster in clusters]
    one = (await desk.http.get(f"/v1/clusters/{desk.agent.cluster}")).json()
    assert (one["state"], one["machines"]) == ("reachable", 1)
    assert (await desk.http.get("/v1/brake")).json()["held"] is False
    unsigned = await desk.http.post(f"/v1/clusters/{desk.agent.cluster}/confirm-lost")
    assert unsigned.status_code == 422


async def test_health_is_told(desk: Desk) -> None:
    assert (await desk.http.get("/healthz")).status_code == 200
    ready = await desk.http.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)


async def test_prometheus_is_served_without_ids_in_labels(desk: Desk) -> None:
    name = fresh()
    await desk.submit(id=name)
    await desk.ended(f"/v1/tasks/default/{name}")
    text = (await desk.http.get("/metrics")).text
    assert 'drystone_tasks{phase="SUCCEEDED"}' in text
    assert 'route="/v1/tasks/{team}/{task}"' in text
    assert name not in text


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
async def test_the_api_describes_itself(desk: Desk, path: str) -> None:
    assert (await desk.http.get(path)).status_code == 200


async def test_output_that_cannot_be_read_says_why(desk: Desk) -> None:
    name = fresh()
    await desk.submit(id=name)
    await desk.ended(f"/v1/tasks/default/{name}")
    answer = await desk.http.get(f"/v1/tasks/default/{name}/logs")
    assert answer.status_code == 503
    assert f"the agent of cluster {desk.agent.cluster} has no address" in answer.json()["detail"]
    missing = await desk.http.get(f"/v1/tasks/default/{name}/logs?attempt=2")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_a_task_that_backs_off_says_so(desk: Desk) -> None:
    name = fresh()
    patient = {"failures": 3, "backoff": {"base_ms": 60_000}}
    await desk.submit(id=name, command=["false"], retries=patient)
    path, summary = f"/v1/tasks/default/{name}", ""
    for _ in range(200):
        summary = (await desk.http.get(f"{path}/explain")).json()["summary"]
        if summary.startswith("Attempt 1 has ended"):
            break
    assert summary.startswith("Attempt 1 has ended; the next one waits until "), summary
    await desk.http.post(f"{path}/cancel")
    assert (await desk.ended(path))["phase"] == "CANCELLED"
