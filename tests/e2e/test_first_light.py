"""One task through every process, on both databases: what is seen of it, as golden text."""

from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client

from domain.ids import WORKFLOW_QUEUE, task_workflow_id
from tests.support.fleet import Fleet, wait_until
from tests.support.postgres import PostgresServer
from tests.support.rest import Rest

pytestmark = pytest.mark.e2e

# Long enough for the agent's word to be written before the end is: `admitted` is never missing.
SPEAKS = "echo out; echo err >&2; sleep 1"
SUCCEEDS = """\
enqueued #0
placed #1 local/m1
admitted #1
ended #1 exited
finished #1 SUCCEEDED
"""
FAILS_ONCE = """\
enqueued #0
placed #1 local/m1
admitted #1
ended #1 exited
waits_again #1
placed #2 local/m1
admitted #2
ended #2 exited
finished #2 SUCCEEDED
"""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """All processes, as compose starts them, with the ledger on either database."""
    url = ""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        name = f"first_light_{uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {name}")
        url = server.url(name)
    folder: Path = tmp_path_factory.mktemp(request.param)
    made = Fleet(folder, database_url=url)
    try:
        made.start_all()
        yield made
    finally:
        made.end()


@pytest.fixture
def rest(fleet: Fleet) -> Iterator[Rest]:
    with Rest(fleet.url) as made:
        yield made


def test_a_task_submitted_over_rest_tells_its_whole_story(rest: Rest) -> None:
    key = rest.submit("speaks", "sh", "-c", SPEAKS)
    task = rest.ended(key)
    assert (task["phase"], task["outcome"]["exit_code"]) == ("SUCCEEDED", 0)
    assert rest.story(key) == SUCCEEDS
    assert (rest.logs(key, stream="stdout"), rest.logs(key, stream="stderr")) == ("out\n", "err\n")
    (attempt,) = rest.attempts(key)
    assert (attempt["cluster"], attempt["machine"]) == ("local", "m1")
    assert attempt["placed_at"] <= attempt["admitted_at"]
    assert attempt["placed_at"] <= attempt["started_at"] <= attempt["ended_at"]
    # It sleeps for a second, but the keeper counts from when it has heard of the start: on a busy
    # machine some milliseconds less.
    assert attempt["ending"]["usage"]["wall_ms"] >= 900
    assert not attempt["holds_room"]


def test_a_task_that_fails_once_is_tried_again_within_its_budget(rest: Rest) -> None:
    flaky = 'sleep 1; [ "$DRYSTONE_ATTEMPT" = 2 ]'
    backoff = {"base_ms": 10}
    key = rest.submit("flaky", "sh", "-c", flaky, retries={"failures": 1, "backoff": backoff})
    assert rest.ended(key)["phase"] == "SUCCEEDED"
    assert rest.story(key) == FAILS_ONCE


async def test_a_task_started_by_any_temporal_client_is_the_same_task(
    fleet: Fleet, rest: Rest
) -> None:
    """The same JSON as the REST body, and nothing of ours but the workflow's name."""
    client = await Client.connect(fleet.temporal_address)
    body = {"team": rest.team, "id": "direct", "command": ["sh", "-c", SPEAKS]}
    key = f"{rest.team}/direct"
    outcome = await client.execute_workflow(
        "TaskWorkflow", body, id=task_workflow_id(key), task_queue=WORKFLOW_QUEUE
    )
    assert outcome["phase"] == "SUCCEEDED"
    assert rest.story(key) == SUCCEEDS
    assert rest.logs(key, stream="stdout") == "out\n"
    again = rest.http.post("/v1/tasks", json=body)
    assert (again.status_code, again.json()["phase"]) == (200, "SUCCEEDED")


def test_the_workload_sees_where_it_runs_and_which_attempt_it_is(rest: Rest) -> None:
    """L88: and its environment is intact, 100,000 characters in one value."""
    value = "drystone " * 11_111 + "."
    named = "env | grep -E '^DRYSTONE_(TASK_ID|ATTEMPT|TEAM|CLUSTER|MACHINE)=' | sort"
    script = f'{named}; printf %s "$LONG" | wc -c; printf %s "$LONG" | md5sum'
    key = rest.submit("looks", "sh", "-c", script, env={"LONG": value})
    assert rest.ended(key)["phase"] == "SUCCEEDED"
    *told, length, digest = rest.logs(key, stream="stdout").splitlines()
    assert told == [
        "DRYSTONE_ATTEMPT=1",
        "DRYSTONE_CLUSTER=local",
        "DRYSTONE_MACHINE=m1",
        "DRYSTONE_TASK_ID=looks",
        f"DRYSTONE_TEAM={rest.team}",
    ]
    assert length.strip() == str(len(value))
    assert digest.split()[0] == md5(value.encode()).hexdigest()


def test_an_attempt_that_ends_while_its_agent_is_away_is_reported_and_not_run_again(
    fleet: Fleet, rest: Rest, tmp_path: Path
) -> None:
    """L53"""
    notes = tmp_path / "notes"
    script = f"echo begun >> {notes}; sleep 1; echo done >> {notes}"
    key = rest.submit("ends", "sh", "-c", script)
    wait_until(notes.exists, "it runs")
    fleet.kill("agent")
    wait_until(lambda: "done" in notes.read_text(), "it ends")
    fleet.start("agent")
    task = rest.ended(key)
    assert (task["phase"], task["number"]) == ("SUCCEEDED", 1)
    assert notes.read_text().split() == ["begun", "done"]
