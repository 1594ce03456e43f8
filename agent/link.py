"""The agent and Temporal: orders come in as activities, reports and heartbeats go out as signals.

Knows names of queues, workflows and signals; decides nothing about attempts or leases.
"""

import asyncio
import contextlib
import itertools
from datetime import timedelta

from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.runtime import MetricBuffer
from temporalio.service import RPCError
from temporalio.worker import Worker

from agent.admission import Beaten, BrakeLifted, bulletin, leased
from agent.engine import Engine, boot_ms
from agent.outbox import SIGNAL_S_MAX
from agent.polls import PollWatch, ended_polls
from agent.rolls import roll_answer
from domain.audit import RollAnswer, RollCall
from domain.ids import WORKFLOW_QUEUE, agent_queue, cluster_workflow_id, task_workflow_id
from domain.protocol import (
    PROTOCOL_VERSION,
    ClusterEnvelope,
    ClusterMessage,
    Delivery,
    DeliveryAnswer,
    Grant,
    GrantAnswer,
    Heartbeat,
    LiftAnswer,
    LiftMachines,
    Register,
    TaskEnvelope,
    TaskMessage,
)
from runtime.telemetry import logger
from runtime.temporal import FIRST
from workflows.ports import AgentPort

REPORT = "report"
TELL = "tell"
CLUSTER_WORKFLOW = "ClusterWorkflow"
ACTIVITY_POLLERS = 2
"""One delivery is in flight at a time; the second poller takes a grant meanwhile."""
NEWS_SPACING_S = 0.25
"""News of machines go out at once, but not more often: each heartbeat is four events of history."""
KEEPERS_WAIT_S = 3.0
"""After a restart, offers that came before the keepers are back could only wait."""
WATCH_S = 1.0
REACH_S_MAX = 2.0
WORKFLOW_TASK_S = 2.0
"""A killed worker holds up the cluster's workflow no longer than this."""


class TemporalSignals:
    """See `agent.outbox.Signals`."""

    def __init__(self, client: Client, cluster: str, instance: str) -> None:
        self._client = client
        self._cluster = cluster
        self._sender = f"agent/{cluster}/{instance}"
        self._seq = itertools.count(1)

    async def report(self, key: str, message: TaskMessage) -> None:
        """Signal the task's workflow."""
        envelope = TaskEnvelope(sender=self._sender, seq=next(self._seq), message=message)
        handle = self._client.get_workflow_handle(task_workflow_id(key))
        await handle.signal(REPORT, envelope, rpc_timeout=timedelta(seconds=SIGNAL_S_MAX))

    async def tell(self, message: ClusterMessage, seconds_max: float = SIGNAL_S_MAX) -> None:
        """Signal the cluster's workflow, and start it where there is none."""
        envelope = ClusterEnvelope(sender=self._sender, seq=next(self._seq), message=message)
        await self._client.start_workflow(
            CLUSTER_WORKFLOW,
            id=cluster_workflow_id(self._cluster),
            task_queue=WORKFLOW_QUEUE,
            priority=FIRST,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=TELL,
            start_signal_args=[envelope],
            task_timeout=timedelta(seconds=WORKFLOW_TASK_S),
            rpc_timeout=timedelta(seconds=seconds_max),
        )

    async def reaches(self) -> bool:
        """True when the server answers a question about our own queue."""
        question = DescribeTaskQueueRequest(
            namespace=self._client.namespace,
            task_queue=TaskQueue(name=agent_queue(self._cluster)),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        try:
            await self._client.workflow_service.describe_task_queue(
                question, timeout=timedelta(seconds=REACH_S_MAX)
            )
        except RPCError:
            return False
        return True


class AgentActivities(AgentPort):
    """The scheduler's orders."""

    def __init__(self, engine: Engine, cluster: str) -> None:
        self._engine = engine
        self._cluster = cluster
        self.taken = 0
        """Orders that reached us prove that polls get through."""

    @activity.defn
    async def deliver(self, delivery: Delivery) -> DeliveryAnswer:
        """See `AgentPort`."""
        self._check(delivery)
        return await self._engine.deliver(delivery)

    @activity.defn
    async def grant(self, grant: Grant) -> GrantAnswer:
        """See `AgentPort`."""
        self._check(grant)
        answer = await self._engine.grant(grant)
        logger().info("granted", epoch=answer.epoch, closed=len(grant.closed))
        return answer

    @activity.defn
    async def roll_call(self, call: RollCall) -> RollAnswer:
        """See `AgentPort`."""
        self._check(call)
        return roll_answer(self._engine.state, call)

    @activity.defn
    async def lift_machines(self, lift: LiftMachines) -> LiftAnswer:
        """See `AgentPort`."""
        self._check(lift)
        held = self._engine.state.braked
        self._engine.tell(BrakeLifted())
        await self._engine.idle()
        self._engine.changed.set()  # Whoever waits for it sees it with the next heartbeat.
        logger().warning("brake on losses of machines lifted", by=lift.by, held=held)
        return LiftAnswer(instance=self._engine.state.instance, lifted=held)

    def _check(self, order: Delivery | Grant | RollCall | LiftMachines) -> None:
        self.taken += 1
        if order.v != PROTOCOL_VERSION or order.cluster != self._cluster:
            raise ApplicationError(
                f"this agent is of cluster {self._cluster}, protocol {PROTOCOL_VERSION}",
                type="misfit",
                non_retryable=True,
            )


def orders_of(client: Client, activities: AgentActivities, cluster: str, grace_s: float) -> Worker:
    """The Temporal worker that serves the agent's queue."""
    return Worker(
        client,
        task_queue=agent_queue(cluster),
        activities=[
            activities.deliver,
            activities.grant,
            activities.roll_call,
            activities.lift_machines,
        ],
        max_concurrent_activity_task_polls=ACTIVITY_POLLERS,
        graceful_shutdown_timeout=timedelta(seconds=grace_s),
    )


class Heart:
    """Registers, beats, and stops beating when orders cannot reach us."""

    def __init__(
        self,
        engine: Engine,
        signals: TemporalSignals,
        activities: AgentActivities,
        metrics: MetricBuffer,
        *,
        heartbeat_s: float,
        http_address: str,
        site: str,
    ) -> None:
        self._engine = engine
        self._signals = signals
        self._activities = activities
        self._metrics = metrics
        self._heartbeat_s = heartbeat_s
        self._http_address = http_address
        self._site = site
        self._seq = itertools.count(1)
        self._watch = PollWatch(succeeded_ms=boot_ms())
        self._orders_seen = 0
        self._digests_after = ""

    async def run(self) -> None:
        """Until cancelled."""
        watching = asyncio.create_task(self._watch_polls())
        try:
            await self._keepers_back()
            await self._register()
            await self._granted()
            while True:
                taken = await self._beat_if_healthy()
                await asyncio.sleep(NEWS_SPACING_S if taken else WATCH_S)
                if taken:
                    await self._next_beat()
        finally:
            watching.cancel()

    async def _beat_if_healthy(self) -> bool:
        terms = self._engine.state.terms
        if not self._watch.healthy(boot_ms(), terms.lease_ms):
            logger().warning("no poll gets through: no heartbeat")
            return False
        return await self._heartbeat()

    async def _register(self) -> None:
        register = Register(
            instance=self._engine.state.instance,
            http_address=self._http_address,
            site=self._site,
        )
        taken = False
        while not taken:
            taken = await self._beat(register, ())
            await asyncio.sleep(0 if taken else WATCH_S)

    async def _heartbeat(self) -> bool:
        """An epoch of 0 says that there is no lease: it asks for a grant."""
        self._engine.changed.clear()
        state, now_ms = self._engine.state, boot_ms()
        news = bulletin(state, now_ms, self._digests_after)
        self._digests_after = news.running[-1].machine if news.running else ""
        heartbeat = Heartbeat(
            instance=state.instance,
            epoch=state.epoch if leased(state, now_ms) else 0,
            seq=next(self._seq),
            machines=news.machines,
            states=news.states,
            running=news.running,
            http_address=self._http_address,
            site=self._site,
            braked=state.braked,
        )
        return await self._beat(heartbeat, news.told)

    async def _beat(self, message: Register | Heartbeat, told: tuple[tuple[str, int], ...]) -> bool:
        sent_ms = boot_ms()
        try:
            await self._signals.tell(message, self._heartbeat_s)
        except RPCError as error:
            logger().warning("heartbeat not taken", error=error.message, status=error.status.name)
            return False
        self._engine.tell(Beaten(sent_ms, told))
        return True

    async def _next_beat(self) -> None:
        """After a heartbeat's time, or at once when there is news."""
        await self._wait(self._engine.changed, self._heartbeat_s - NEWS_SPACING_S)

    async def _granted(self) -> None:
        """The registration is answered with a grant; a heartbeat before it would ask again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._heartbeat_s
        while not leased(self._engine.state, boot_ms()) and loop.time() < until:
            self._engine.changed.clear()
            await self._wait(self._engine.changed, until - loop.time())

    async def _keepers_back(self) -> None:
        """Those that the journal knows, for a moment."""
        loop = asyncio.get_running_loop()
        until = loop.time() + KEEPERS_WAIT_S
        while loop.time() < until and any(
            machine.connection is None for machine in self._engine.state.machines.values()
        ):
            self._engine.changed.clear()
            await self._wait(self._engine.changed, until - loop.time())

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await event.wait()

    async def _watch_polls(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            successes, failures = ended_polls(self._metrics.retrieve_updates())
            orders, self._orders_seen = self._orders_seen, self._activities.taken
            successes += self._activities.taken - orders
            self._watch = self._watch.after(successes, failures, boot_ms())
            if self._watch.asks and await self._signals.reaches():
                self._watch = self._watch.reached(boot_ms())
