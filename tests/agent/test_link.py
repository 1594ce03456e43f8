"""The agent's side of Temporal, on the real server: signals, their refusals, and polls."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from agent.admission import HandOver, Report, ReportTaken, Terms, WorkflowGone, restored
from agent.engine import Engine, boot_ms
from agent.journal import Journal
from agent.link import AgentActivities, TemporalSignals, orders_of
from agent.outbox import Outbox, is_gone
from agent.polls import ended_polls
from agent.state import What
from domain.ids import WORKFLOW_QUEUE, attempt_id, cluster_workflow_id, task_workflow_id
from domain.protocol import (
    DeliveryHint,
    Ended,
    Orphan,
    TaskMessage,
    read_cluster_envelope,
    read_task_envelope,
)
from runtime.temporal import plugin
from tests.agent.bench import EXITED
from tests.agent.fake_keeper import until, until_true
from tests.agent.stubs import ClusterStub, TaskStub

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture
async def client(dev_server_env: WorkflowEnvironment) -> AsyncIterator[Client]:
    stubs = [TaskStub, ClusterStub]
    async with Worker(dev_server_env.client, task_queue=WORKFLOW_QUEUE, workflows=stubs):
        yield dev_server_env.client


def a_report(key: str, number: int = 1) -> Report:
    ended = Ended(number=number, cluster="c1", machine="m1", at=NOW, ending=EXITED)
    return Report(attempt_id(key, number), ended)


async def start_task(client: Client, key: str) -> None:
    await client.start_workflow("TaskWorkflow", id=task_workflow_id(key), task_queue=WORKFLOW_QUEUE)


# --- signals --------------------------------------------------------------------------------------


async def test_a_report_arrives_as_an_envelope_that_fits(client: Client) -> None:
    key = "link/reported"
    await start_task(client, key)
    signals = TemporalSignals(client, "c1", "a1")
    await signals.report(key, a_report(key).message)
    handle = client.get_workflow_handle(task_workflow_id(key))
    (raw,) = await handle.query(TaskStub.reports)
    envelope = read_task_envelope(raw)
    assert envelope is not None
    assert envelope.message == a_report(key).message
    assert (envelope.sender, envelope.seq) == ("agent/c1/a1", 1)


async def test_the_clusters_workflow_is_started_by_the_first_message(client: Client) -> None:
    signals = TemporalSignals(client, "started-by-signal", "a1")
    await signals.tell(DeliveryHint())
    await signals.tell(DeliveryHint())
    handle = client.get_workflow_handle(cluster_workflow_id("started-by-signal"))
    told = [read_cluster_envelope(raw) for raw in await handle.query(ClusterStub.told)]
    assert [envelope and envelope.seq for envelope in told] == [1, 2]


async def test_a_workflow_that_never_was_is_gone(client: Client) -> None:
    with pytest.raises(RPCError) as caught:
        await TemporalSignals(client, "c1", "a1").report("link/never", a_report("link/x").message)
    assert is_gone(caught.value)


async def test_a_workflow_that_has_ended_is_gone(client: Client) -> None:
    key = "link/ended"
    await start_task(client, key)
    handle = client.get_workflow_handle(task_workflow_id(key))
    await handle.signal(TaskStub.end)
    await handle.result()
    with pytest.raises(RPCError) as caught:
        await TemporalSignals(client, "c1", "a1").report(key, a_report(key).message)
    assert is_gone(caught.value)


async def test_a_namespace_that_is_missing_does_not_make_its_workflows_gone(
    client: Client,
) -> None:
    elsewhere = await Client.connect(
        client.service_client.config.target_host, namespace="nowhere", plugins=[plugin()]
    )
    with pytest.raises(RPCError) as caught:
        await TemporalSignals(elsewhere, "c1", "a1").report("link/x", a_report("link/x").message)
    assert caught.value.status is RPCStatusCode.NOT_FOUND
    assert not is_gone(caught.value)


# --- the outbox -----------------------------------------------------------------------------------


class FlakySignals:
    """A server that is away for the first tries of each report."""

    def __init__(self, failures: int, status: RPCStatusCode = RPCStatusCode.UNAVAILABLE) -> None:
        self.failures, self.status = failures, status
        self.tries: dict[str, int] = {}
        self.in_flight = self.most_in_flight = 0
        self.told: list[object] = []

    async def report(self, key: str, message: TaskMessage) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        self.tries[key] = self.tries.get(key, 0) + 1
        if self.tries[key] <= self.failures:
            raise RPCError("not now", self.status, b"")

    async def tell(self, message: object) -> None:
        self.told.append(message)


async def outbox_with(signals: FlakySignals, count: int) -> list[What]:
    events: list[What] = []
    outbox = Outbox(events.append, random.Random(1))
    for number in range(count):
        outbox.put(a_report(f"link/r{number}"))
    running = asyncio.create_task(outbox.run(signals))
    assert await outbox.flushed(20) == 0
    running.cancel()
    return events


async def test_a_report_is_tried_until_it_is_taken() -> None:
    signals = FlakySignals(failures=3)
    events = await outbox_with(signals, 100)
    assert sorted(e.report.attempt for e in events if isinstance(e, ReportTaken)) == sorted(
        f"link/r{number}#1" for number in range(100)
    )
    assert set(signals.tries.values()) == {4}
    assert signals.most_in_flight <= 32


async def test_a_report_that_finds_nobody_is_not_tried_again() -> None:
    signals = FlakySignals(failures=1, status=RPCStatusCode.NOT_FOUND)
    (event,) = await outbox_with(signals, 1)
    assert isinstance(event, WorkflowGone)
    assert signals.tries == {"link/r0": 1}


async def test_an_orphan_goes_to_the_cluster() -> None:
    signals = FlakySignals(failures=0)
    events: list[What] = []
    outbox = Outbox(events.append, random.Random(1))
    orphan = Orphan(key="link/o", number=1, machine="m1", ending=EXITED, at=NOW)
    outbox.put(HandOver("link/o#1", orphan))
    running = asyncio.create_task(outbox.run(signals))
    assert await outbox.flushed(20) == 0
    running.cancel()
    assert signals.told == [orphan]
    assert events == [ReportTaken(HandOver("link/o#1", orphan))]


async def test_what_cannot_be_sent_in_time_is_counted() -> None:
    outbox = Outbox(lambda _: None, random.Random(1))
    outbox.put(a_report("link/r"))
    assert await outbox.flushed(0.01) == 1


async def test_a_server_reaches_us_while_it_answers_about_our_queue(
    client: Client,
) -> None:
    assert await TemporalSignals(client, "c1", "a1").reaches()
    elsewhere = Client(client.service_client, namespace="nowhere", plugins=[plugin()])
    assert not await TemporalSignals(elsewhere, "c1", "a1").reaches()


# --- orders and polls -----------------------------------------------------------------------------


async def test_orders_come_in_and_the_metrics_show_that_polls_get_through(
    client: Client, tmp_path
) -> None:
    journal = Journal(tmp_path)
    state, effects = restored(
        journal.read(), terms=Terms(), cluster="polled", instance="a1", now_ms=boot_ms()
    )
    engine = Engine(state, effects, journal)
    engine.outbox = Outbox(engine.tell, random.Random(1))
    activities = AgentActivities(engine, "polled")
    metrics = MetricBuffer(10_000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=metrics))
    target = client.service_client.config.target_host
    own = await Client.connect(target, runtime=runtime, plugins=[plugin()])
    running = asyncio.create_task(engine.run())
    async with orders_of(own, activities, "polled", 1):
        await client.start_workflow(
            "ClusterWorkflow",
            id=cluster_workflow_id("polled"),
            task_queue=WORKFLOW_QUEUE,
            start_signal="tell",
            start_signal_args=[{"message": {"kind": "register", "instance": "a1"}}],
        )
        await until(lambda: engine.state.epoch == 1, "the grant arrives")
        successes = 0

        async def polled() -> bool:
            nonlocal successes
            more, failures = ended_polls(metrics.retrieve_updates())
            successes += more
            assert failures == 0
            return successes > 0

        await until_true(polled, "a poll that got through is counted")
    assert activities.taken == 1
    running.cancel()
