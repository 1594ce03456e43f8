"""ClusterWorkflow: drives domain.cluster for one cluster. Decides nothing about silence itself."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BaseModel, Field
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError

from domain.cluster import ClusterState, begin, check, step
from domain.protocol import (
    ClusterMessage,
    Delivery,
    DeliveryHint,
    Grant,
    LiftMachines,
    left_out,
    read_cluster_envelope,
)
from domain.supervision import (
    ArmSlice,
    ArmSuspicion,
    ClusterAnswer,
    ClusterEffect,
    ClusterEvent,
    ClusterNews,
    Delivered,
    DeliveryFailed,
    Granted,
    GrantFailed,
    PageLoss,
    SendDelivery,
    SendGrant,
    SendLift,
    SliceEnded,
    SuspicionDue,
)
from workflows.entity import Entity, Inbox, carried_over
from workflows.options import LEDGER, LOSS, to_agent
from workflows.ports import AgentPort, ClusterPort
from workflows.story import cluster_story

ID_PREFIX = "cluster/"
SHORT_RUNS = "short-runs"
"""Runs that began before it go on to the events that they were promised."""
CLUSTER_EVENTS_MAX = 300
"""The longer its history, the later each delivery: at 25 tasks a second by seconds before 2,000."""

Kept = Annotated[ClusterMessage | ClusterNews, Field(discriminator="kind")]


class CarriedCluster(BaseModel, frozen=True):
    """What one run hands to the next."""

    state: ClusterState
    inbox: tuple[Kept, ...] = ()


@workflow.defn
class ClusterWorkflow:
    """Lease, reachability and deliveries of one cluster."""

    @workflow.init
    def __init__(self, carried: Any = None) -> None:
        """Handlers may run before `run`: the inbox is there from the first signal on."""
        cluster = workflow.info().workflow_id.removeprefix(ID_PREFIX)
        fresh = CarriedCluster(state=ClusterState(cluster=cluster))
        kept = carried_over(CarriedCluster, carried) or fresh
        self._inbox: Inbox[Any] = Inbox(
            read_cluster_envelope, kept.inbox, kept.state.misfits, when_dropped=DeliveryHint()
        )
        self._entity: Entity[ClusterState, Any, ClusterEffect] = Entity(
            kept.state,
            self._inbox,
            step=self._step,
            perform=self._perform,
            ended=_never,
            show=self._show,
        )
        self._beside: set[asyncio.Task[None]] = set()

    @workflow.run
    async def run(self, _carried: Any = None) -> None:
        """For ever, a run after the other."""
        if workflow.patched(SHORT_RUNS):
            self._entity.history_events_max = CLUSTER_EVENTS_MAX
        self._entity.state, effects = begin(self._entity.state)
        await self._entity.drive(effects)
        for task in self._beside:
            task.cancel()
        state = self._entity.state.model_copy(update={"misfits": self._inbox.misfits})
        workflow.continue_as_new(CarriedCluster(state=state, inbox=self._inbox.kept()))

    @workflow.signal
    def tell(self, envelope: Any = None) -> None:
        """A ClusterEnvelope: registration, heartbeats, hints, orphans, an operator's words."""
        self._inbox.tell(envelope)

    @workflow.signal(dynamic=True)
    def unknown(self, _name: str, _args: Sequence[RawValue]) -> None:
        """A signal that nothing here sends: counted."""
        self._inbox.misfits += 1

    def _step(
        self, state: ClusterState, event: ClusterEvent
    ) -> tuple[ClusterState, tuple[ClusterEffect, ...]]:
        after, effects = step(state, event, workflow.now())
        check(after)
        return after, effects

    def _show(self, state: ClusterState) -> None:
        workflow.set_current_details(cluster_story(state, self._inbox.misfits))

    async def _perform(self, effect: ClusterEffect) -> ClusterAnswer | None:
        """The ledger answers at once; agents, timers and pages report through the inbox."""
        match effect:
            case SendGrant(grant=grant):
                self._go(self._grant(grant))
            case SendDelivery(delivery=delivery):
                self._go(self._deliver(delivery))
            case ArmSlice() | ArmSuspicion():
                self._go(self._timer(effect))
            case PageLoss():
                self._go(self._page(effect))
            case SendLift(lift=lift):
                self._go(self._lift(lift))
            case _:
                return await workflow.execute_local_activity_method(
                    ClusterPort.cluster_ledger, effect, **LEDGER
                )
        return None

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _grant(self, grant: Grant) -> None:
        options = to_agent(grant.cluster)
        try:
            answer = await workflow.execute_activity_method(AgentPort.grant, grant, **options)
        except ActivityError:
            self._inbox.put(GrantFailed(epoch=grant.epoch))
        else:
            self._inbox.put(Granted(answer=answer))

    async def _deliver(self, delivery: Delivery) -> None:
        options = to_agent(delivery.cluster)
        try:
            answer = await workflow.execute_activity_method(AgentPort.deliver, delivery, **options)
        except ActivityError:
            self._inbox.put(DeliveryFailed())
        else:
            missing = left_out(delivery, answer)
            self._inbox.put(Delivered(answer=answer, left_out=missing))

    async def _lift(self, lift: LiftMachines) -> None:
        options = to_agent(lift.cluster)
        with suppress(ActivityError):  # Whoever asked for it sees that it still holds.
            await workflow.execute_activity_method(AgentPort.lift_machines, lift, **options)

    async def _timer(self, armed: ArmSlice | ArmSuspicion) -> None:
        due = workflow.now() + armed.wait
        await asyncio.sleep(armed.wait.total_seconds())
        if isinstance(armed, ArmSlice):
            self._inbox.put(SliceEnded(began=armed.began))
        else:
            self._inbox.put(SuspicionDue(heard_at=armed.heard_at, due=due))

    async def _page(self, ask: PageLoss) -> None:
        paged = await workflow.execute_activity_method(ClusterPort.page_loss, ask, **LOSS)
        self._inbox.put(paged)


def _never(_state: ClusterState) -> bool:
    return False
