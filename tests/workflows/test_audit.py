"""AuditWorkflow: wiring only. What differs and how it is healed is tested in tests/store."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

from temporalio.client import WorkflowHandle
from temporalio.worker import Worker

from domain.attempt import StopCause
from domain.audit import Compare, Compared, Conclude, Concluded, RollCall, Sweep, Swept
from domain.ids import agent_queue
from domain.protocol import Delivery, StopOrder
from tests.workflows.conftest import Stage
from tests.workflows.fakes import FakeAgent
from workflows.audit import CLUSTERS_AT_ONCE, AuditWorkflow

STOP = StopOrder(key="blue/t", number=1, machine="m1", cause=StopCause.WORKFLOW_GONE, grace_s=30)


async def audited(stage: Stage, agent: FakeAgent, cluster: str = "") -> Concluded:
    """One audit; the agent of this cluster is there."""
    async with AsyncExitStack() as open_ones:
        await open_ones.enter_async_context(stage.worker())
        if cluster:
            orders: list[Callable[..., Any]] = [agent.deliver, agent.roll_call]
            serving = Worker(stage.client, task_queue=agent_queue(cluster), activities=orders)
            await open_ones.enter_async_context(serving)
        handle: WorkflowHandle[AuditWorkflow, Concluded] = await stage.client.start_workflow(
            AuditWorkflow.run, id=f"audit-{uuid4()}", task_queue=stage.queue
        )
        return await handle.result()


async def test_a_ledger_that_adds_up_is_swept_to_its_end_and_nobody_is_asked(
    skipping: Stage,
) -> None:
    skipping.audits.answers = [Swept(run=7, part=2, after="x"), Swept(run=7)]
    agent = FakeAgent()
    assert (await audited(skipping, agent)).run == 7
    assert skipping.audits.took(Sweep) == Sweep()
    assert skipping.audits.took(Sweep) == Sweep(run=7, part=2, after="x")
    assert skipping.audits.took(Conclude) == Conclude(run=7)
    skipping.audits.nothing_left()
    agent.nothing_left()


async def test_lists_are_looked_at_twice_and_orders_without_a_claim_are_delivered(
    skipping: Stage,
) -> None:
    cluster = f"c{uuid4().hex[:8]}"
    call = RollCall(cluster=cluster, machines=("m1", "m2"))
    skipping.audits.answers = [
        Swept(run=7, calls=(call,)),
        Compared(machines=("m2",)),
        Compared(stops=(STOP,)),
    ]
    agent = FakeAgent()
    await audited(skipping, agent, cluster)
    assert agent.took(RollCall) == call
    assert agent.took(RollCall).machines == ("m2",)
    assert agent.took(Delivery).orders == (STOP,)
    agent.nothing_left()
    skipping.audits.took(Sweep)
    assert not skipping.audits.took(Compare).again
    assert skipping.audits.took(Compare).again
    assert skipping.audits.took(Conclude) == Conclude(run=7, machines_asked=2)


async def test_an_agent_that_does_not_answer_is_counted_and_holds_up_nobody(
    skipping: Stage,
) -> None:
    cluster = f"c{uuid4().hex[:8]}"
    away = RollCall(cluster=cluster, machines=("m1",))
    agent = FakeAgent()
    agent.away_from = cluster
    skipping.audits.answers = [Swept(run=7, calls=(away,))]
    await audited(skipping, agent, cluster)
    skipping.audits.took(Sweep)
    assert skipping.audits.took(Conclude) == Conclude(run=7, clusters_unheard=1)


async def test_a_long_audit_goes_on_in_a_new_run(rolling: Stage) -> None:
    agent = FakeAgent()
    cluster = f"c{uuid4().hex[:8]}"
    names = [f"m{number}" for number in range(CLUSTERS_AT_ONCE + 1)]
    calls = tuple(RollCall(cluster=cluster, machines=(name,)) for name in names)
    rolling.audits.answers = [Swept(run=7, calls=calls), *(Compared() for _ in calls)]
    concluded = await audited(rolling, agent, cluster)
    assert concluded.run == 7
    rolling.audits.took(Sweep)
    seen = [rolling.audits.took(Compare).answer.rolls[0].machine for _ in calls]
    assert sorted(seen) == names
    assert rolling.audits.took(Conclude).machines_asked == len(calls)
