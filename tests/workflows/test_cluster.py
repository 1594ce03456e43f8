"""ClusterWorkflow: wiring only. What supervision decides is tested in tests/domain."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.worker import Worker

from domain.ids import agent_queue
from domain.protocol import (
    ClusterEnvelope,
    ClusterMessage,
    Delivery,
    DeliveryHint,
    Grant,
    Heartbeat,
    Register,
)
from domain.supervision import LeaseTerms
from tests.workflows.conftest import Stage
from tests.workflows.fakes import FakeAgent, eventually
from workflows.cluster import CLUSTER_EVENTS_MAX, ClusterWorkflow

Handle = WorkflowHandle[ClusterWorkflow, None]


class Cluster:
    """One cluster's workflow and its agent."""

    def __init__(self, stage: Stage) -> None:
        self.name = f"c{uuid4().hex[:8]}"
        self.stage = stage
        self.agent = FakeAgent()

    def agent_worker(self) -> Worker:
        return Worker(
            self.stage.client,
            task_queue=agent_queue(self.name),
            activities=[self.agent.deliver, self.agent.grant],
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Handle]:
        async with self.stage.worker(), self.agent_worker():
            handle = await self.stage.client.start_workflow(
                ClusterWorkflow.run, id=f"cluster/{self.name}", task_queue=self.stage.queue
            )
            try:
                yield handle
            finally:  # Its timers would hold up every later test's clock.
                current = self.stage.client.get_workflow_handle(handle.id)
                await current.query("__temporal_workflow_metadata")
                await current.terminate()

    async def tell(self, handle: Handle, message: ClusterMessage) -> None:
        current = self.stage.client.get_workflow_handle(handle.id)
        await current.signal(ClusterWorkflow.tell, ClusterEnvelope(message=message))

    async def noted(self, kind: str, times: int = 1) -> None:
        ledger = self.stage.clusters
        await eventually(lambda: ledger.kinds().count(kind) >= times, f"{times} x {kind}")


async def passes(stage: Stage, handle: Handle, time: timedelta) -> None:
    """Time goes by, and what fell due has been worked on: a clock that runs on meanwhile would let
    the workflow task itself time out."""
    await handle.query("__temporal_workflow_metadata")
    await stage.env.sleep(time)
    await handle.query("__temporal_workflow_metadata")


async def test_an_agent_that_registers_is_granted_and_given_its_orders(skipping: Stage) -> None:
    cluster = Cluster(skipping)
    skipping.clusters.orders = [Delivery(cluster=cluster.name, epoch=1, orders=())]
    async with cluster.running() as handle:
        await cluster.tell(handle, Register(instance="a1"))
        await cluster.noted("note_answers")
    assert cluster.agent.took(Grant).epoch == 1
    assert cluster.agent.took(Delivery).epoch == 1
    cluster.agent.nothing_left()
    kinds = skipping.clusters.kinds()
    assert kinds[:4] == ["open", "note_registration", "begin_grant", "note_granted"]


async def test_a_silent_cluster_is_suspect_then_fenced_then_paged(skipping: Stage) -> None:
    """Here a clock that jumps makes every timer late, so lateness is not judged."""
    cluster = Cluster(skipping)
    ledger = skipping.clusters
    ledger.terms = LeaseTerms(late_s=86_400)
    slice_s = ledger.terms.slice
    async with cluster.running() as handle:
        await cluster.tell(handle, Register(instance="a1"))
        await cluster.noted("note_granted")
        for _ in range(4):
            await passes(skipping, handle, slice_s)
        await cluster.noted("mark_suspect")
        assert "fence" not in ledger.kinds()
        for _ in range(10 * ledger.terms.slices_needed):
            if "fence" in ledger.kinds():
                break
            await passes(skipping, handle, slice_s)
        await cluster.noted("page_loss", 2)
    assert ledger.kinds().count("look_at_brake") >= ledger.terms.slices_needed - 2


async def test_a_cluster_that_keeps_sending_heartbeats_is_never_suspect(skipping: Stage) -> None:
    cluster = Cluster(skipping)
    async with cluster.running() as handle:
        await cluster.tell(handle, Register(instance="a1"))
        await cluster.noted("note_granted")
        for seq in range(1, 20):
            await cluster.tell(handle, Heartbeat(instance="a1", epoch=1, seq=seq))
            await cluster.noted("note_heartbeat", seq)
            await passes(skipping, handle, timedelta(seconds=10))
    assert "mark_suspect" not in skipping.clusters.kinds()


async def test_an_agent_that_is_away_is_granted_at_its_next_heartbeat(
    quick: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the real server: the other one lets no time pass while an activity waits for its start."""
    monkeypatch.setattr("workflows.options.DELIVERY_START_S", 1)
    cluster = Cluster(quick)
    async with quick.worker():
        handle = await quick.client.start_workflow(
            ClusterWorkflow.run, id=f"cluster/{cluster.name}", task_queue=quick.queue
        )
        await cluster.tell(handle, Register(instance="a1"))
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.event_type is EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                break
        # On a busy machine its first poll may come later than that; a real agent would beat again.
        monkeypatch.setattr("workflows.options.DELIVERY_START_S", 30)
        async with cluster.agent_worker():
            await cluster.tell(handle, Heartbeat(instance="a1", epoch=0, seq=1))
            await cluster.noted("note_granted")
            await handle.terminate()
    assert cluster.agent.took(Grant).epoch == 2


async def test_what_does_not_fit_is_counted_and_shown(skipping: Stage) -> None:
    cluster = Cluster(skipping)
    async with cluster.running() as handle:
        await handle.signal("tell", {"v": 1, "message": {"kind": "gossip"}})
        await handle.signal("shout", "x")
        await cluster.tell(handle, Register(instance="a1"))
        await cluster.noted("note_granted")
        shown = await handle.query("__temporal_workflow_metadata")
    assert "could not be read: 2" in str(shown)


async def test_a_new_run_keeps_epoch_agent_and_inbox(rolling: Stage) -> None:
    cluster = Cluster(rolling)
    async with cluster.running() as handle:
        await cluster.tell(handle, Register(instance="a1"))
        await cluster.noted("note_granted")
        for seq in range(1, 31):
            await cluster.tell(handle, Heartbeat(instance="a1", epoch=1, seq=seq))
        await cluster.tell(handle, DeliveryHint())
        await cluster.noted("note_heartbeat", 30)
    kinds = rolling.clusters.kinds()
    assert kinds.count("open") >= 2
    assert kinds.count("begin_grant") == 1


async def test_a_run_is_over_before_its_history_slows_it(skipping: Stage) -> None:
    cluster = Cluster(skipping)
    async with cluster.running() as handle:
        await cluster.tell(handle, Register(instance="a1"))
        await cluster.noted("note_granted")
        for seq in range(1, CLUSTER_EVENTS_MAX):
            await cluster.tell(handle, Heartbeat(instance="a1", epoch=1, seq=seq))
            await cluster.noted("note_heartbeat", seq)
            if skipping.clusters.kinds().count("open") > 1:
                break
        first = handle.first_execution_run_id
        history = await skipping.client.get_workflow_handle(handle.id, run_id=first).fetch_history()
    assert history.events[-1].event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
    assert CLUSTER_EVENTS_MAX <= len(history.events) < CLUSTER_EVENTS_MAX + 20
