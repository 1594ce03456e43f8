"""What only whole processes can show: agents, workers, clusters that go away while work runs.

Leases are short here, so that what takes a minute in production takes seconds.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from domain.attempt import StopCause
from store.audit import audit
from store.orders import request_stop
from store.session import open_engine, reading, transaction
from tests.support.fleet import Fleet, wait_until
from tests.support.rest import Rest

pytestmark = pytest.mark.e2e

SHORT_LEASE = {
    "DRYSTONE_HEARTBEAT_S": "1",
    "DRYSTONE_SUSPECT_S": "4",
    "DRYSTONE_LEASE_S": "10",
    "DRYSTONE_LEASE_MARGIN_S": "1",
}
STILL_S = 2.0
"""Work that writes ten times a second and has not for so long stands still."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two clusters with one machine each: `local/m1`, and the smaller `far/m2`."""
    made = Fleet(tmp_path_factory.mktemp("faults"), extra_environment=SHORT_LEASE)
    made.add_agent("agent-far", "far")
    made.add_keeper("keeper-far", "m2", "agent-far")
    try:
        made.start_all()
        yield made
    finally:
        made.end()


@pytest.fixture
def rest(fleet: Fleet) -> Iterator[Rest]:
    """A client, and at the end a look at what the test has left."""
    with Rest(fleet.url) as made:
        yield made
    engine = open_engine(fleet.database_url)
    with reading(engine) as connection:
        assert audit(connection) == []
        held = connection.execute(sa.text("select attempt from claim where standing != 'released'"))
        assert held.all() == []
    engine.dispose()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Where attempts leave their traces."""
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def ticking(notes: Path, count: int) -> str:
    """A script that notes its attempt number ten times a second, as long as it may run."""
    return (
        f'i=0; while [ $i -lt {count} ]; do echo "$DRYSTONE_ATTEMPT" >> {notes}/ticks; '
        "sleep 0.1; i=$((i+1)); done"
    )


def ticks(notes: Path) -> list[str]:
    """The attempt numbers noted so far."""
    path = notes / "ticks"
    return path.read_text().split() if path.exists() else []


def stands_still(notes: Path) -> bool:
    """No tick for a while."""
    return time.time() - (notes / "ticks").stat().st_mtime > STILL_S


def on(cluster: str) -> dict[str, object]:
    """Nowhere else."""
    return {"constraints": {"clusters": [cluster]}}


def test_cancels_while_no_worker_runs_release_everything_once_there_is_one(
    fleet: Fleet, rest: Rest, notes: Path
) -> None:
    """L71"""
    running = rest.submit("running", "sh", "-c", ticking(notes, 3_000), grace_s=1)
    wait_until(lambda: bool(ticks(notes)), "it runs")
    full = {"resources": {"cpu": "64", "memory": "1Gi"}, **on("local")}
    rest.submit("blocker", "sleep", "600", **full)
    waiting = rest.submit("waiting", "true", **full)
    fleet.kill("worker")
    for key in (running, waiting, f"{rest.team}/blocker"):
        rest.cancel(key)
    fleet.start("worker")
    for key in (running, waiting, f"{rest.team}/blocker"):
        assert rest.ended(key)["phase"] == "CANCELLED"
    assert rest.task(waiting)["number"] == 0


def test_a_preempted_attempt_that_exits_0_has_not_succeeded_and_runs_again(
    fleet: Fleet, rest: Rest, notes: Path
) -> None:
    """L35, L29"""
    forever = 'trap "exit 0" TERM; while [ "$DRYSTONE_ATTEMPT" = 1 ]; do sleep 0.1; done'
    key = rest.submit("yields", "sh", "-c", f"echo $DRYSTONE_ATTEMPT >> {notes}/ticks; {forever}")
    wait_until(lambda: bool(ticks(notes)), "it runs")
    rest.until(key, "RUNNING")
    engine = open_engine(fleet.database_url)
    with transaction(engine) as connection:
        request_stop(connection, key, StopCause.PREEMPT, datetime.now(UTC))
    engine.dispose()
    task = rest.ended(key)
    assert (task["phase"], task["number"]) == ("SUCCEEDED", 2)
    first, second = (attempt["ending"] for attempt in rest.attempts(key))
    assert (first["kind"], first["stop_cause"], first["exit_code"]) == ("stopped", "preempt", 0)
    assert second["kind"] == "exited"
    assert task["spec"]["retries"]["failures"] == 0


def test_waiting_does_not_count_as_running(rest: Rest) -> None:
    """L90"""
    full = {"resources": {"cpu": "64", "memory": "1Gi"}, **on("local")}
    blocker = rest.submit("blocker", "sleep", "4", **full)
    rest.until(blocker, "RUNNING")
    patient = rest.submit("patient", "sleep", "1", run_timeout_s=3, **full)
    hasty = rest.submit("hasty", "true", queue_timeout_s=1, **full)
    assert rest.ended(hasty)["phase"] == "EXPIRED"
    task = rest.ended(patient)
    assert task["phase"] == "SUCCEEDED"
    (attempt,) = rest.attempts(patient)
    waited_s = _instant(attempt["placed_at"]) - _instant(task["enqueued_at"])
    assert waited_s > 3, "it waited longer than it may run"


def test_a_cancel_kills_children_that_left_the_process_group(rest: Rest, notes: Path) -> None:
    """L67"""
    escaped = f"setsid sh -c 'trap \"\" TERM; while :; do echo c >> {notes}/ticks; sleep 0.1; done'"
    key = rest.submit("parent", "sh", "-c", f"{escaped} & wait", grace_s=1)
    wait_until(lambda: bool(ticks(notes)), "the child runs")
    rest.cancel(key)
    assert rest.ended(key)["phase"] == "CANCELLED"
    wait_until(lambda: stands_still(notes), "the child is gone", 10)


def test_an_outage_of_the_control_plane_costs_time_and_no_work(
    fleet: Fleet, rest: Rest, notes: Path
) -> None:
    """L61"""
    key = rest.submit("survives", "sh", "-c", ticking(notes, 150), **on("local"))
    wait_until(lambda: bool(ticks(notes)), "it runs")
    fleet.kill("temporal")
    fleet.kill("worker")
    wait_until(lambda: stands_still(notes), "it is frozen at its deadline", 30)
    noted = len(ticks(notes))
    assert noted < 150
    fleet.start("temporal")
    fleet.start("worker")
    wait_until(lambda: len(ticks(notes)) > noted, "it is thawed")
    task = rest.ended(key)
    assert (task["phase"], task["number"]) == ("SUCCEEDED", 1)
    assert ticks(notes) == ["1"] * 150


def test_work_of_a_silent_cluster_is_replaced_after_its_fence_and_never_runs_twice_at_once(
    fleet: Fleet, rest: Rest, notes: Path
) -> None:
    """L51: what the old attempt does later changes nothing."""
    cordon(rest, "local/m1", "cordon")
    # The first would outlive its silence; the second lasts until the first is back, and not longer.
    ends = f'[ "$DRYSTONE_ATTEMPT" = 1 ] || {{ {ticking(notes, 100)}; exit; }}; '
    key = rest.submit("moves", "sh", "-c", ends + ticking(notes, 600))
    wait_until(lambda: bool(ticks(notes)), "it runs on the far cluster")
    cordon(rest, "local/m1", "uncordon")
    fleet.kill("agent-far")
    wait_until(lambda: "2" in ticks(notes), "it is replaced")
    fleet.start("agent-far")

    def first_has_ended() -> bool:
        return not rest.attempts(key)[0]["holds_room"]

    wait_until(first_has_ended, "the far cluster is back and the first attempt gives its room back")
    task = rest.ended(key)
    assert (task["phase"], task["number"], task["cluster"]) == ("SUCCEEDED", 2, "local")
    seen = ticks(notes)
    assert seen == sorted(seen), "the first attempt ran after the second had begun"
    assert seen.count("2") == 100
    assert 0 < seen.count("1") < 600


def cordon(rest: Rest, machine: str, wish: str) -> None:
    """No new tasks there, or new ones again."""
    answer = rest.http.post(f"/v1/machines/{machine}/{wish}")
    assert answer.json()["cordoned"] is (wish == "cordon"), answer.text


def _instant(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()
