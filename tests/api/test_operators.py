"""Audits, brakes and words of operators over REST."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection
from temporalio.service import RPCError

from domain.audit import AUDIT_SCHEDULE
from domain.protocol import MachineState, Register
from store.clusters import begin_grant, confirm_lost, grant_answered, mark_suspect, register
from store.session import open_engine, transaction
from tests.api.conftest import Desk, until
from worker.schedule import keep_audit_schedule

SILENT = ("silent-1", "silent-2")


@contextmanager
def ledger(desk: Desk) -> Iterator[Connection]:
    """The ledger behind the API."""
    engine = open_engine(desk.settings.database_url)
    with transaction(engine) as connection:
        yield connection
    engine.dispose()


async def told(desk: Desk, path: str) -> dict[str, Any]:
    answer = await desk.http.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
def two_silent(desk: Desk) -> Iterator[None]:
    """Two of three clusters fall silent."""
    now = datetime.now(UTC)
    with ledger(desk) as connection:
        for name in SILENT:
            register(connection, name, Register(instance="1"), now)
            granted = begin_grant(connection, name, now)
            grant_answered(connection, name, granted.epoch, (), now)
        for name in SILENT:
            assert mark_suspect(connection, name, 1, now)
    yield
    with ledger(desk) as connection:
        for name in SILENT:
            confirm_lost(connection, name, None, "the test", now)


@pytest.mark.usefixtures("two_silent")
async def test_the_brake_is_an_alarm_until_somebody_lifts_it(desk: Desk) -> None:
    held = await told(desk, "/v1/brake")
    assert (held["held"], held["silent"], held["counted"]) == (True, 2, 3)
    ready = await told(desk, "/readyz")
    assert ready["ready"] is True
    assert any("2 of 3 clusters are silent" in alarm for alarm in ready["alarms"])
    gauges = (await desk.http.get("/metrics")).text
    assert "drystone_brake 1.0" in gauges
    assert "drystone_silent_clusters 2.0" in gauges
    assert (await desk.http.post("/v1/brake/lift")).status_code == 422
    lifted = await desk.http.post("/v1/brake/lift", params={"by": "ann"})
    assert (lifted.status_code, lifted.json()["held"]) == (202, False)
    again = await desk.http.post("/v1/brake/lift", params={"by": "bob"})
    assert again.json()["by"] == "ann"
    assert (await told(desk, "/readyz"))["alarms"] == []
    acts = (await told(desk, "/v1/audit"))["acts"]
    assert [(act["by"], act["act"], act["subject"]) for act in acts] == [
        ("ann", "lift-brake", "clusters")
    ]


async def test_an_agents_brake_on_losses_of_machines_is_shown_and_lifted(desk: Desk) -> None:
    agent, path = desk.agent, f"/v1/clusters/{desk.agent.cluster}"
    agent.braked = True
    await agent.heartbeat()

    async def holds() -> bool:
        return (await told(desk, path))["machines_braked_since"] is not None

    await until(holds, "the agent's brake is told")
    assert list((await told(desk, "/v1/brake"))["machines"]) == [agent.cluster]
    assert "gives no silent machine up" in (await told(desk, "/readyz"))["alarms"][0]
    label = f'drystone_machine_brake{{cluster="{agent.cluster}"}} 1.0'
    assert label in (await desk.http.get("/metrics")).text
    answer = await desk.http.post(f"{path}/brake/lift", params={"by": "ann"})
    assert answer.status_code == 202

    async def lifted() -> bool:
        return not agent.braked

    await until(lifted, "the agent is told")
    await agent.heartbeat()

    async def shown() -> bool:
        return not await holds()

    await until(shown, "the next heartbeat says so")
    missing = await desk.http.post("/v1/clusters/nowhere/brake/lift", params={"by": "ann"})
    assert missing.status_code == 404


async def test_only_what_does_not_answer_can_be_said_to_be_lost(desk: Desk) -> None:
    agent = desk.agent
    path = f"/v1/machines/{agent.cluster}/m1"
    for place in (path, f"/v1/clusters/{agent.cluster}"):
        refused = await desk.http.post(f"{place}/confirm-lost", params={"by": "ann"})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    await agent.heartbeat(states=(MachineState(machine="m1", reachable=False),))

    async def silent() -> bool:
        return not (await told(desk, path))["reachable"]

    await until(silent, "the machine is silent")
    answer = await desk.http.post(f"{path}/confirm-lost", params={"by": "ann"})
    assert answer.status_code == 202

    async def written() -> bool:
        acts = (await told(desk, "/v1/audit"))["acts"]
        said = [(act["by"], act["act"], act["subject"]) for act in acts]
        return ("ann", "confirm-lost", f"{agent.cluster}/m1") in said

    await until(written, "who said so is written down")
    missing = await desk.http.post(f"{path}2/confirm-lost", params={"by": "ann"})
    assert missing.status_code == 404


async def test_audits_are_shown_and_begun(desk: Desk) -> None:
    schedule = desk.temporal.get_schedule_handle(AUDIT_SCHEDULE)
    with suppress(RPCError):
        await schedule.delete()
    assert (await desk.http.post("/v1/audit")).status_code == 503
    await keep_audit_schedule(desk.temporal, desk.settings)
    try:
        await until(lambda: _ended(desk, 1), "the first, begun by the schedule")
        begun = await desk.http.post("/v1/audit")
        assert (begun.status_code, begun.json()["run"]) == (202, 1)
        await until(lambda: _ended(desk, 2), "the second, begun by hand")
    finally:
        await schedule.delete()
    assert (await told(desk, "/v1/audit"))["standing"] == []
    gauges = (await desk.http.get("/metrics")).text
    assert 'drystone_audit_differences{fault="runs_without_claim"} 0.0' in gauges
    assert "drystone_audit_ended_seconds 1." in gauges


async def _ended(desk: Desk, run: int) -> bool:
    report = await told(desk, "/v1/audit")
    return bool(report["run"] >= run and report["ended_at"])
