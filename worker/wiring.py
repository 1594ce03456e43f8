"""Composition root of the worker: which collaborator is made of what, which queue serves what."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine
from temporalio.client import Client
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.audit import Audits
from activities.clusters import Clusters
from activities.ledger import Ledger
from activities.losses import Losses
from activities.notices import Notices
from activities.placement import Placement, brings_work
from activities.writer import LedgerWriter
from domain.claims import LedgerOperation
from domain.ids import WORKFLOW_QUEUE
from domain.supervision import BrakeTerms, LeaseTerms
from runtime.settings import LeaseSettings, Settings
from store import ledger
from store.ledger import Applied
from workflows.audit import AuditWorkflow
from workflows.cluster import ClusterWorkflow
from workflows.floor import FloorWorkflow
from workflows.placement import PlacementWorkflow
from workflows.task import TaskWorkflow

WORKFLOWS = (TaskWorkflow, PlacementWorkflow, ClusterWorkflow, AuditWorkflow, FloorWorkflow)
WORKFLOW_TASKS_MAX = 100
ACTIVITIES_MAX = 100
LOCAL_ACTIVITIES_MAX = 500
"""They wait for one commit together: as many as there are, so many does the commit hold."""


@dataclass(frozen=True, slots=True)
class Wired:
    """The running parts of a worker."""

    worker: Worker
    notices: Notices


@asynccontextmanager
async def wired(settings: Settings, client: Client, engine: Engine) -> AsyncIterator[Wired]:
    """Everything made and started; on leaving, what was begun is finished."""
    loop = asyncio.get_running_loop()
    notices = Notices(client, task_timeout_s=settings.workflow_task_timeout_s)

    def apply(connection: Connection, operations: list[LedgerOperation]) -> Applied:
        now = datetime.now(UTC)
        return ledger.apply(connection, operations, partitions=settings.partitions, now=now)

    def committed(operations: list[LedgerOperation], applied: Applied) -> None:
        """Called by the writer's thread: the loop owns the client."""
        loop.call_soon_threadsafe(placement.woken, brings_work(operations))
        loop.call_soon_threadsafe(notices.ring, applied.rings)
        loop.call_soon_threadsafe(notices.hint, applied.clusters)

    writer = LedgerWriter(engine, apply, committed)
    placement = Placement(settings, engine, writer, notices)
    writer.start()
    try:
        audits = Audits(engine, writer, notices, settings.audit_look_again_s)
        yield Wired(worker_of(settings, client, writer, notices, placement, audits), notices)
        await notices.drain()
    finally:
        await asyncio.to_thread(writer.stop)


def worker_of(
    settings: Settings,
    client: Client,
    writer: LedgerWriter,
    notices: Notices,
    placement: Placement,
    audits: Audits,
) -> Worker:
    """The Temporal worker; not running yet."""
    tasks = Ledger(writer)
    losses = Losses(writer, notices, settings.loss_page_tasks, settings.loss_tasks_per_s)
    clusters = Clusters(
        terms_of(settings),
        settings.offer_deadline_s,
        writer,
        notices,
        losses,
        BrakeTerms(clusters=settings.brake_clusters, percent=settings.brake_percent),
    )
    return Worker(
        client,
        task_queue=WORKFLOW_QUEUE,
        workflows=list(WORKFLOWS),
        activities=[
            tasks.ledger,
            placement.place_round,
            placement.close_gone,
            clusters.cluster_ledger,
            clusters.page_loss,
            audits.audit_ledger,
        ],
        max_cached_workflows=settings.cached_workflows,
        max_concurrent_workflow_tasks=WORKFLOW_TASKS_MAX,
        max_concurrent_activities=ACTIVITIES_MAX,
        max_concurrent_local_activities=LOCAL_ACTIVITIES_MAX,
        workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(settings.workflow_pollers),
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(settings.activity_pollers),
        nonsticky_to_sticky_poll_ratio=settings.nonsticky_to_sticky_poll_ratio,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.sticky_timeout_s),
        graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_grace_s),
    )


def terms_of(settings: LeaseSettings) -> LeaseTerms:
    """The lease as cluster supervision counts it."""
    return LeaseTerms(
        heartbeat_s=settings.heartbeat_s,
        suspect_s=settings.suspect_s,
        lease_s=settings.lease_s,
        drift_percent=settings.lease_drift_percent,
        margin_s=settings.lease_margin_s,
        slices=settings.lease_slices,
        late_s=settings.slice_late_s,
    )
