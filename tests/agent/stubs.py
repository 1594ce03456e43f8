"""Workflows that take an agent's signals and give its orders, and keep what they were told."""

from typing import Any

from temporalio import workflow

from domain.audit import RollCall
from domain.protocol import Delivery, Grant, LiftMachines
from workflows.options import to_agent
from workflows.ports import AgentPort


@workflow.defn(name="TaskWorkflow")
class TaskStub:
    """Keeps the reports of one task; ends when told."""

    def __init__(self) -> None:
        self._reports: list[Any] = []
        self._ended = False

    @workflow.run
    async def run(self) -> list[Any]:
        await workflow.wait_condition(lambda: self._ended)
        return self._reports

    @workflow.signal
    def report(self, envelope: Any) -> None:
        self._reports.append(envelope)

    @workflow.signal
    def end(self) -> None:
        self._ended = True

    @workflow.query
    def reports(self) -> list[Any]:
        return self._reports


@workflow.defn(name="ClusterWorkflow")
class ClusterStub:
    """Grants what registers, delivers what it is handed, and keeps every message and answer."""

    def __init__(self) -> None:
        self._told: list[Any] = []
        self._answers: list[Any] = []
        self._orders: list[Delivery] = []
        self._registered: list[str] = []
        self._epoch = 0

    @workflow.run
    async def run(self, _carried: Any = None) -> None:
        cluster = workflow.info().workflow_id.removeprefix("cluster/")
        options = to_agent(cluster)
        while True:
            await workflow.wait_condition(lambda: bool(self._registered or self._orders))
            if self._registered:
                self._registered.clear()
                self._epoch += 1
                grant = Grant(cluster=cluster, epoch=self._epoch, closed=())
                self._answers.append(
                    await workflow.execute_activity_method(AgentPort.grant, grant, **options)
                )
            else:
                delivery = self._orders.pop(0).model_copy(update={"epoch": self._epoch})
                self._answers.append(
                    await workflow.execute_activity_method(AgentPort.deliver, delivery, **options)
                )

    @workflow.signal
    def tell(self, envelope: Any) -> None:
        self._told.append(envelope)
        if envelope["message"]["kind"] == "register":
            self._registered.append(envelope["message"]["instance"])

    @workflow.signal
    def order(self, delivery: Delivery) -> None:
        self._orders.append(delivery)

    @workflow.signal
    async def roll(self, call: RollCall) -> None:
        options = to_agent(call.cluster)
        answer = await workflow.execute_activity_method(AgentPort.roll_call, call, **options)
        self._answers.append(answer)

    @workflow.signal
    async def lift(self, lift: LiftMachines) -> None:
        options = to_agent(lift.cluster)
        answer = await workflow.execute_activity_method(AgentPort.lift_machines, lift, **options)
        self._answers.append(answer)

    @workflow.query
    def told(self) -> list[Any]:
        return self._told

    @workflow.query
    def answers(self) -> list[Any]:
        return self._answers
