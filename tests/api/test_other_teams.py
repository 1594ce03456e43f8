"""A task is known by team and id together: under another team nobody can see or touch it."""

from uuid import uuid4

from tests.api.conftest import Desk

VERBS = {"GET", "POST"}


async def test_a_task_is_not_found_under_another_team_whatever_is_asked(desk: Desk) -> None:
    """L103, as far as there are no users yet: every route that names a task, found by itself."""
    name = f"t-{uuid4().hex}"
    assert (await desk.submit(id=name, team="blue", command=["sleep", "9"])).status_code == 201
    document = (await desk.http.get("/openapi.json")).json()
    asked = [
        (verb.upper(), path)
        for path, verbs in document["paths"].items()
        for verb in verbs
        if "{task}" in path
    ]
    assert len(asked) >= 6, asked
    assert {verb for verb, _ in asked} == VERBS
    for verb, path in asked:
        foreign = path.format(team="red", task=name)
        answer = await desk.http.request(verb, foreign)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (verb, foreign)
    listed = (await desk.http.get("/v1/tasks", params={"team": "red"})).json()["items"]
    assert name not in [task["id"] for task in listed]
    mine = (await desk.http.get(f"/v1/tasks/blue/{name}")).json()
    assert not mine["ended_at"]
    await desk.http.post(f"/v1/tasks/blue/{name}/cancel")
    assert (await desk.ended(f"/v1/tasks/blue/{name}"))["phase"] == "CANCELLED"
