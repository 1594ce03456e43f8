"""Typed signals to our own workflows: rings, hints, and what tasks must be told.

A hint may be lost or doubled: the ledger's rows are the truth. Knows no row.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from datetime import timedelta
from typing import Generic, TypeVar

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from domain.ids import (
    WORKFLOW_QUEUE,
    cluster_workflow_id,
    placement_workflow_id,
    task_workflow_id,
)
from domain.protocol import ClusterEnvelope, ClusterMessage, DeliveryHint, TaskEnvelope, TaskMessage
from runtime.telemetry import logger
from runtime.temporal import FIRST
from workflows.cluster import ClusterWorkflow
from workflows.placement import PlacementWorkflow
from workflows.task import TaskWorkflow

SENDER = "worker"
ANSWER_S_MAX = 5
HOLD_S_MAX = 0.5
"""A hint is held back for so long at most."""

_Name = TypeVar("_Name", bound=Hashable)


class Notices:
    """A client's signals. `task_timeout_s`: how long a killed worker can hold up who is told."""

    def __init__(self, client: Client, *, task_timeout_s: float) -> None:
        self._client = client
        self._task_timeout = timedelta(seconds=task_timeout_s)
        self._rings: _Latest[int] = _Latest(self._ring)
        self._hints: _Latest[str] = _Latest(self._hint)
        self._delivering: dict[str, asyncio.TimerHandle] = {}
        self._held: set[str] = set()

    def ring(self, partitions: Iterable[int]) -> None:
        """Soon, and at least once after this call, without waiting for it."""
        self._rings.want(partitions)

    def hint(self, clusters: Iterable[str]) -> None:
        """Soon, and at least once after this call, without waiting for it.

        While a delivery is out, the hint goes with the answer to it: a signal and a workflow task
        for each round would cost more than the delivery.
        """
        for cluster in clusters:
            if cluster in self._delivering:
                self._held.add(cluster)
            else:
                self._hints.want([cluster])

    def loading(self, cluster: str) -> None:
        """Orders are about to be loaded: they are told to the agent, and then its answers to us."""
        self._held.discard(cluster)
        before = self._delivering.pop(cluster, None)
        if before is not None:
            before.cancel()
        later = asyncio.get_running_loop().call_later
        self._delivering[cluster] = later(HOLD_S_MAX, self._let_go, cluster)

    def delivered(self, cluster: str) -> bool:
        """The delivery is over, or there was none. True when a hint was held back meanwhile."""
        timer = self._delivering.pop(cluster, None)
        if timer is not None:
            timer.cancel()
        held = cluster in self._held
        self._held.discard(cluster)
        return held

    def _let_go(self, cluster: str) -> None:
        """It takes long, or another process has noted its answers."""
        if self.delivered(cluster):
            self._hints.want([cluster])

    async def drain(self) -> None:
        """Wait for rings and hints that are on their way."""
        await self._rings.drain()
        await self._hints.drain()

    async def tell_task(self, key: str, message: TaskMessage) -> bool:
        """False when the task's workflow does not exist (any more)."""
        handle = self._client.get_workflow_handle_for(TaskWorkflow.run, task_workflow_id(key))
        envelope = TaskEnvelope(sender=SENDER, message=message)
        try:
            await handle.signal(TaskWorkflow.report, envelope, rpc_timeout=_ANSWER)
        except RPCError as error:
            # The namespace's absence has the same status: that is not news of the workflow.
            if error.status is RPCStatusCode.NOT_FOUND and "namespace" not in str(error).lower():
                return False
            raise
        return True

    async def tell_cluster(self, cluster: str, message: ClusterMessage) -> None:
        """Start the cluster's workflow where it does not run."""
        await self._client.start_workflow(
            ClusterWorkflow.run,
            id=cluster_workflow_id(cluster),
            task_queue=WORKFLOW_QUEUE,
            priority=FIRST,
            task_timeout=self._task_timeout,
            start_signal=ClusterWorkflow.tell.__name__,
            start_signal_args=[ClusterEnvelope(sender=SENDER, message=message)],
            rpc_timeout=_ANSWER,
        )

    async def _ring(self, partition: int) -> None:
        await self._client.start_workflow(
            PlacementWorkflow.run,
            id=placement_workflow_id(partition),
            task_queue=WORKFLOW_QUEUE,
            priority=FIRST,
            task_timeout=self._task_timeout,
            start_signal=PlacementWorkflow.ring.__name__,
            rpc_timeout=_ANSWER,
        )

    async def _hint(self, cluster: str) -> None:
        await self.tell_cluster(cluster, DeliveryHint())


_ANSWER = timedelta(seconds=ANSWER_S_MAX)


class _Latest(Generic[_Name]):
    """Calls `send` for each name, one at a time per name; wishes made meanwhile become one more."""

    def __init__(self, send: Callable[[_Name], Awaitable[None]]) -> None:
        self._send = send
        self._running: dict[_Name, asyncio.Task[None]] = {}
        self._again: set[_Name] = set()

    def want(self, names: Iterable[_Name]) -> None:
        for name in names:
            if name in self._running:
                self._again.add(name)
            else:
                self._running[name] = asyncio.create_task(self._go(name))

    async def drain(self) -> None:
        while self._running:
            await asyncio.gather(*self._running.values())

    async def _go(self, name: _Name) -> None:
        try:
            while True:
                self._again.discard(name)
                try:
                    await self._send(name)
                except RPCError as error:
                    # A heartbeat or the next enqueue rings and hints again.
                    logger().warning("notice lost", to=str(name), error=str(error))
                if name not in self._again:
                    return
        finally:
            del self._running[name]
