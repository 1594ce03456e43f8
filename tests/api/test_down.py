"""Temporal or the database away: 503 with Retry-After, soon, and nothing half done."""

import asyncio
import time
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from domain.ids import task_workflow_id
from runtime.settings import Settings
from store.schema import migrate
from store.session import open_engine, reading
from store.tasks import tasks
from tests.api.conftest import serving
from tests.support.fleet import free_port

SOON_S = 20.0


def nowhere() -> str:
    return f"127.0.0.1:{free_port()}"


async def test_without_temporal_a_submission_is_told_to_come_again(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, temporal_address=nowhere(), temporal_answer_s=1)
    engine = open_engine(settings.database_url)
    migrate(engine)
    async with serving(settings) as (_app, http):
        began = time.monotonic()
        answer = await http.post("/v1/tasks", json={"command": ["true"], "id": "a"})
        assert time.monotonic() - began < SOON_S
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "2"
        problem = answer.json()
        assert (problem["code"], problem["task"]) == ("unavailable", "a")
        # Reading goes on; what needs Temporal says so.
        assert (await http.get("/v1/tasks")).status_code == 200
        assert (await http.get("/healthz")).status_code == 200
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["parts"]["ledger"]) == (503, "ok")
        assert (await http.get("/v1/tasks/default/a")).status_code == 503
    with reading(engine) as connection:
        assert tasks(connection).items == ()
    engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_without_the_database_nothing_is_started(
    dev_server_env: WorkflowEnvironment, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "ledger.db").mkdir()
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    if kind == "postgresql":
        url = f"postgresql://nobody@{nowhere()}/none"
    client = dev_server_env.client
    settings = Settings(
        data_dir=tmp_path,
        database_url=url,
        temporal_address=client.service_client.config.target_host,
    )
    name = f"t-{uuid4().hex}"
    async with serving(settings) as (_app, http):
        for body in ({"command": ["true"], "id": name}, {"command": ["true"]}):
            answer = await http.post("/v1/tasks", json=body)
            assert answer.status_code == 503, answer.text
            assert answer.headers["retry-after"]
        for path in ("/v1/tasks", "/v1/machines", "/v1/brake", f"/v1/tasks/default/{name}"):
            assert (await http.get(path)).status_code == 503
        assert (await http.get("/readyz")).json()["parts"]["temporal"] == "ok"
        assert (await http.get("/metrics")).status_code == 200
    with pytest.raises(RPCError) as missing:
        await client.get_workflow_handle(task_workflow_id(f"default/{name}")).describe()
    assert missing.value.status is RPCStatusCode.NOT_FOUND


async def test_a_database_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """A server that takes connections and never says a word."""
    server = await asyncio.start_server(_say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = Settings(
        data_dir=tmp_path,
        database_url=f"postgresql://nobody@127.0.0.1:{port}/none",
        temporal_address=nowhere(),
        ledger_answer_s=0.5,
    )
    async with serving(settings) as (_app, http):
        began = time.monotonic()
        answers = await asyncio.gather(*(http.get("/v1/tasks") for _ in range(40)))
        assert {answer.status_code for answer in answers} == {503}
        assert time.monotonic() - began < SOON_S
    server.close()


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def test_without_a_worker_a_submission_is_accepted_and_shown(
    dev_server_env: WorkflowEnvironment, tmp_path: Path
) -> None:
    """No row can be written yet: the workflow's input answers for it."""
    client = dev_server_env.client
    address = client.service_client.config.target_host
    settings = Settings(data_dir=tmp_path, temporal_address=address)
    engine = open_engine(settings.database_url)
    migrate(engine)
    body = {"command": ["sleep", "1"], "id": f"t-{uuid4().hex}", "priority": "HIGH"}
    path = f"/v1/tasks/default/{body['id']}"
    async with serving(settings) as (_app, http):
        codes = [(await http.post("/v1/tasks", json=body)).status_code for _ in range(2)]
        assert codes == [201, 200]
        other = await http.post("/v1/tasks", json={**body, "priority": "LOW"})
        assert other.status_code == 409
        view = (await http.get(path)).json()
        assert (view["phase"], view["spec"]["command"]) == ("PENDING", ["sleep", "1"])
        assert (await http.get(f"{path}/explain")).json()["verdict"] is None
        # Cancelled now, it never runs, whenever a worker comes.
        assert (await http.post(f"{path}/cancel")).status_code == 202
    await client.get_workflow_handle(task_workflow_id(f"default/{body['id']}")).terminate()
    engine.dispose()
