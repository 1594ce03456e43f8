"""A tiny agent: takes grants, admits every offer, and ends each attempt the way a test wants."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from domain.attempt import Ending, EndKind
from domain.audit import Roll, RollAnswer, RollCall
from domain.ids import WORKFLOW_QUEUE, agent_queue, cluster_workflow_id, task_workflow_id
from domain.machine import MachineReport
from domain.protocol import (
    ClusterEnvelope,
    ClusterMessage,
    Delivery,
    DeliveryAnswer,
    Ended,
    Grant,
    GrantAnswer,
    Heartbeat,
    Inquiry,
    LiftAnswer,
    LiftMachines,
    Offer,
    Order,
    OrderAnswer,
    Orphan,
    Register,
    StopOrder,
    TaskEnvelope,
    TaskMessage,
)
from domain.reasons import Reason
from domain.resources import Resources
from workflows.ports import AgentPort

Decide = Callable[[Offer], Ending | None]
"""How an attempt ends at once; None: it keeps running until it is stopped."""


def exited(code: int = 0) -> Ending:
    reason = Reason.NONZERO_EXIT if code else None
    return Ending(kind=EndKind.EXITED, exit_code=code, reason=reason)


@dataclass
class TinyAgent(AgentPort):
    """One cluster with one machine. `mute`: deliveries are taken, but not answered."""

    client: Client
    cluster: str = field(default_factory=lambda: f"c-{uuid4().hex[:8]}")
    decide: Decide = lambda _offer: exited()
    capacity: Resources = field(
        default_factory=lambda: Resources(cpu_milli=64_000, memory_mib=65_536)
    )
    instance: str = field(default_factory=lambda: uuid4().hex)
    epoch: int = 0
    seq: int = 0
    mute: bool = False
    braked: bool = False
    grants: list[Grant] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    live: dict[str, Offer] = field(default_factory=dict)
    ended: dict[str, Ending] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    _reports: set[asyncio.Task[None]] = field(default_factory=set)

    @activity.defn
    async def grant(self, grant: Grant) -> GrantAnswer:
        self.epoch = grant.epoch
        self.grants.append(grant)
        ended = [attempt for attempt in grant.closed if self.live.pop(attempt, None) is not None]
        return GrantAnswer(
            instance=self.instance, epoch=grant.epoch, ended=tuple({*ended, *grant.closed})
        )

    @activity.defn
    async def deliver(self, delivery: Delivery) -> DeliveryAnswer:
        self.orders.extend(delivery.orders)
        answers = [] if self.mute else [await self._take(order) for order in delivery.orders]
        return DeliveryAnswer(instance=self.instance, epoch=delivery.epoch, answers=tuple(answers))

    @activity.defn
    async def roll_call(self, call: RollCall) -> RollAnswer:
        rolls = [Roll(machine=name, attempts=tuple(sorted(self.live))) for name in call.machines]
        return RollAnswer(instance=self.instance, epoch=self.epoch, rolls=tuple(rolls))

    @activity.defn
    async def lift_machines(self, lift: LiftMachines) -> LiftAnswer:
        held, self.braked = self.braked, False
        return LiftAnswer(instance=self.instance, lifted=held)

    async def _take(self, order: Order) -> OrderAnswer:
        attempt = f"{order.key}#{order.number}"
        match order:
            case Offer():
                return await self._admit(order, attempt)
            case StopOrder(cause=cause):
                self.live.pop(attempt, None)
                stopped = Ending(kind=EndKind.STOPPED, stop_cause=cause)
                await self._end(order, attempt, self.ended.get(attempt, stopped))
            case Inquiry() if attempt in self.ended:
                await self._end(order, attempt, self.ended[attempt])
        return _answer(order, "taken")

    async def _admit(self, order: Offer, attempt: str) -> OrderAnswer:
        if attempt not in self.live and attempt not in self.ended:
            self.ran.append(attempt)
            ending = self.decide(order)
            if ending is None:
                self.live[attempt] = order
            else:
                ended = asyncio.create_task(self._end(order, attempt, ending))
                self._reports.add(ended)
                ended.add_done_callback(self._reports.discard)
                if ending.kind is EndKind.REFUSED:
                    return _answer(order, "refused")
        return _answer(order, "admitted")

    async def _end(self, order: Order, attempt: str, ending: Ending) -> None:
        self.ended[attempt] = ending
        await self.report(order.key, self.ended_report(order, ending))

    def ended_report(self, order: Order, ending: Ending) -> Ended:
        return Ended(
            number=order.number,
            cluster=self.cluster,
            machine=order.machine,
            at=datetime.now(UTC),
            ending=ending,
        )

    async def finish(self, attempt: str, ending: Ending) -> None:
        """A running attempt ends."""
        order = self.live.pop(attempt)
        await self._end(order, attempt, ending)

    async def orphan(self, attempt: str, ending: Ending) -> None:
        """A running attempt ends, and its workflow is gone."""
        order = self.live.pop(attempt)
        self.ended[attempt] = ending
        await self.tell(
            Orphan(
                key=order.key,
                number=order.number,
                machine=order.machine,
                ending=ending,
                at=datetime.now(UTC),
            )
        )

    async def report(self, key: str, message: TaskMessage) -> None:
        handle = self.client.get_workflow_handle(task_workflow_id(key))
        try:
            await handle.signal("report", TaskEnvelope(sender=self.cluster, message=message))
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def tell(self, message: ClusterMessage) -> None:
        """To the cluster's workflow, started where it does not run."""
        self.seq += 1
        await self.client.start_workflow(
            "ClusterWorkflow",
            id=cluster_workflow_id(self.cluster),
            task_queue=WORKFLOW_QUEUE,
            start_signal="tell",
            start_signal_args=[ClusterEnvelope(sender=self.cluster, seq=self.seq, message=message)],
        )

    async def heartbeat(self, machines: tuple[MachineReport, ...] = (), **given: Any) -> None:
        fields: dict[str, Any] = {"instance": self.instance, "epoch": self.epoch, "seq": self.seq}
        await self.tell(Heartbeat(machines=machines, braked=self.braked, **fields, **given))

    async def register(self) -> None:
        """As an agent does when it starts: itself, then its machines."""
        await self.tell(Register(instance=self.instance))
        await self.heartbeat((MachineReport(name="m1", instance="k1", capacity=self.capacity),))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["TinyAgent"]:
        worker = Worker(
            self.client,
            task_queue=agent_queue(self.cluster),
            activities=[self.grant, self.deliver, self.roll_call, self.lift_machines],
        )
        async with worker:
            await self.register()
            try:
                yield self
            finally:
                handle = self.client.get_workflow_handle(cluster_workflow_id(self.cluster))
                await handle.terminate()


def _answer(order: Order, word: Literal["admitted", "refused", "taken"]) -> OrderAnswer:
    return OrderAnswer(key=order.key, number=order.number, order=order.kind, answer=word)
