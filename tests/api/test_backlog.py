"""Too many waiting tasks: more are told to come again, and nothing is lost."""

from tests.api.conftest import Desk, serving


async def test_above_the_bound_a_submission_is_429_and_names_it(desk: Desk) -> None:
    settings = desk.settings.model_copy(update={"backlog_tasks_max": 1})
    await desk.http.post(f"/v1/machines/{desk.agent.cluster}/m1/cordon")
    first = {"command": ["true"], "id": "fills-the-backlog"}
    async with serving(settings) as (_app, http):
        assert (await http.post("/v1/tasks", json=first)).status_code == 201
        refused = await http.post("/v1/tasks", json={"command": ["true"], "id": "one-too-many"})
        assert refused.status_code == 429, refused.text
        assert refused.headers["retry-after"] == "2"
        assert refused.json()["code"] == "backlog_full"
        assert "no more than 1 may" in refused.json()["detail"]
        # Nothing was accepted; what was accepted before is still told so.
        assert (await http.get("/v1/tasks/default/one-too-many")).status_code == 404
        assert (await http.post("/v1/tasks", json=first)).status_code == 200
        await desk.http.post(f"/v1/machines/{desk.agent.cluster}/m1/uncordon")
        await desk.ended("/v1/tasks/default/fills-the-backlog")
        again = await http.post("/v1/tasks", json={"command": ["true"], "id": "one-too-many"})
        while again.status_code == 429:
            again = await http.post("/v1/tasks", json={"command": ["true"], "id": "one-too-many"})
        assert again.status_code == 201
    assert (await desk.ended("/v1/tasks/default/one-too-many"))["phase"] == "SUCCEEDED"
