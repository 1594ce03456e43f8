"""Drains over REST: asked for, shown, carried out by rounds and deliveries, and ended."""

from typing import Any

from tests.activities.agents import TinyAgent
from tests.api.conftest import Desk, until


async def told(desk: Desk, path: str) -> dict[str, Any]:
    answer = await desk.http.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_drain_names_what_stands_in_its_way_and_moves_it_when_there_is_room(
    desk: Desk,
) -> None:
    machine = f"/v1/machines/{desk.agent.cluster}/m1"
    task = "/v1/tasks/default/drained"
    assert (await desk.submit(id="drained", command=["sleep", "9"])).status_code == 201

    async def runs_as(number: int) -> bool:
        view = await told(desk, task)
        return (view["phase"], view["number"]) == ("RUNNING", number)

    await until(lambda: runs_as(1), "the task runs")
    drained = await desk.http.post(f"{machine}/drain", params={"by": "ann"})
    assert (drained.status_code, drained.json()["cordoned"]) == (202, True)

    async def named() -> bool:
        return bool((await told(desk, machine))["drain"]["blocked_by"] == ["default/drained"])

    await until(named, "the task that stands in the way is named")
    assert await runs_as(1)
    ended = await desk.http.post(f"{machine}/undrain")
    assert (ended.json()["cordoned"], ended.json()["drain"]) == (False, None)
    async with TinyAgent(desk.temporal, decide=lambda _: None).serving() as other:
        await until(lambda: _has_machine(desk, other.cluster), "there is room elsewhere")
        whole = f"/v1/clusters/{desk.agent.cluster}"
        assert (await desk.http.post(f"{whole}/drain")).status_code == 202
        await until(lambda: runs_as(2), "it runs elsewhere")
        assert (await told(desk, task))["cluster"] == other.cluster
        assert (await told(desk, machine))["drain"]["attempts"] == 0
        assert (await desk.http.post(f"{whole}/undrain")).status_code == 202
        await desk.http.post(f"{task}/cancel")
        await desk.ended(task)
    acts = [(act["by"], act["act"]) for act in (await told(desk, "/v1/audit"))["acts"]]
    assert ("ann", "drain") in acts


async def test_a_drain_of_what_is_not_there_is_refused(desk: Desk) -> None:
    for path, status in (
        (f"/v1/machines/{desk.agent.cluster}/m9/drain", 404),
        (f"/v1/machines/{desk.agent.cluster}/m9/undrain", 404),
        ("/v1/clusters/nowhere/drain", 404),
        (f"/v1/clusters/{desk.agent.cluster}/drain?deadline_s=-1", 422),
    ):
        assert (await desk.http.post(path)).status_code == status, path


async def _has_machine(desk: Desk, cluster: str) -> bool:
    items = (await told(desk, f"/v1/machines?cluster={cluster}"))["items"]
    return any(machine["reachable"] for machine in items)
