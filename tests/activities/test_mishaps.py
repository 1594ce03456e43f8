"""Resets, terminations and lost processes, on a real server and a real ledger."""

import asyncio
from collections.abc import Callable

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from domain.attempt import Ending, EndKind, Outcome, Phase
from domain.ids import TaskKey
from domain.reasons import Reason
from domain.views import TaskView
from store.overview import team_usage
from store.session import reading
from store.tasks import task
from tests.activities.agents import Decide, exited
from tests.activities.plants import Plant
from tests.workflows.fakes import eventually

Handle = WorkflowHandle[object, Outcome]


def key_of(handle: Handle) -> TaskKey:
    return TaskKey(handle.id.removeprefix("task/"))


def row(plant: Plant, handle: Handle) -> TaskView | None:
    with reading(plant.engine) as connection:
        return task(connection, key_of(handle))


def in_phase(plant: Plant, handle: Handle, phase: Phase) -> Callable[[], bool]:
    def look() -> bool:
        seen = row(plant, handle)
        return seen is not None and seen.phase is phase

    return look


def nothing_is_held(plant: Plant) -> bool:
    with reading(plant.engine) as connection:
        return all(team.used.vector() == (0, 0, 0, 0, 0) for team in team_usage(connection))


def in_turn(*endings: Ending) -> Decide:
    """The first attempt ends the first way, and so on."""
    left = list(endings)
    return lambda _offer: left.pop(0)


async def reset(plant: Plant, handle: Handle, *, signals: bool) -> Handle:
    """To its first completed workflow task, as the Web UI does."""
    events = (await handle.fetch_history()).events
    completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    first = next(event.event_id for event in events if event.event_type == completed)
    left_out = [] if signals else [ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL]
    answer = await plant.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=plant.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id),
            reason="test",
            workflow_task_finish_event_id=first,
            request_id=f"reset-{handle.id}-{signals}",
            reset_reapply_exclude_types=left_out,
        )
    )
    return plant.client.get_workflow_handle(handle.id, run_id=answer.run_id, result_type=Outcome)


async def test_a_reset_while_running_adopts_the_attempt(plant: Plant) -> None:
    for signals in (True, False):
        async with plant.agent(decide=lambda _offer: None) as agent:
            clusters = {"clusters": [agent.cluster]}
            handle = await plant.submit(constraints=clusters)
            await eventually(in_phase(plant, handle, Phase.RUNNING), "running")
            again = await reset(plant, handle, signals=signals)
            attempt = f"{key_of(handle)}#1"
            await agent.finish(attempt, exited())
            outcome = await again.result()
        assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=1)
        assert agent.ran == [attempt]


async def test_a_reset_after_the_end_finds_the_recorded_outcome(plant: Plant) -> None:
    for signals in (True, False):
        async with plant.agent() as agent:
            handle = await plant.submit(constraints={"clusters": [agent.cluster]})
            before = await handle.result()
            after = await (await reset(plant, handle, signals=signals)).result()
        assert after == before
        assert len(agent.ran) == 1


async def test_a_reset_that_lost_the_report_of_the_end_hears_it_again(plant: Plant) -> None:
    """The reset leaves out the signal whose settle had not been made: the agent is asked again."""
    async with plant.agent(decide=lambda _offer: None) as agent:
        handle = await plant.submit()
        await eventually(in_phase(plant, handle, Phase.RUNNING), "running")
        attempt = f"{key_of(handle)}#1"
        order = agent.live.pop(attempt)
        agent.ended[attempt] = exited()  # It has ended, and its report is lost on the way.
        assert order.number == 1
        again = await reset(plant, handle, signals=False)
        outcome = await again.result()
    assert outcome.phase is Phase.SUCCEEDED


async def test_a_terminated_task_leaves_no_claim_behind(plant: Plant) -> None:
    async with plant.agent(decide=lambda _offer: None) as agent:
        handle = await plant.submit()
        await eventually(in_phase(plant, handle, Phase.RUNNING), "running")
        await handle.terminate()
        attempt = f"{key_of(handle)}#1"
        await agent.orphan(attempt, exited())
        await eventually(in_phase(plant, handle, Phase.CANCELLED), "closed")
    seen = row(plant, handle)
    assert seen is not None
    assert seen.outcome is not None
    assert seen.outcome.reason is Reason.WORKFLOW_GONE
    assert nothing_is_held(plant)


async def test_a_cancelled_running_task_is_stopped_first(plant: Plant) -> None:
    async with plant.agent(decide=lambda _offer: None) as agent:
        handle = await plant.submit()
        await eventually(in_phase(plant, handle, Phase.RUNNING), "running")
        await handle.cancel()
        outcome = await handle.result()
        described = await handle.describe()
    assert (outcome.phase, outcome.reason) == (Phase.CANCELLED, Reason.CANCELLED_BY_USER)
    assert described.status is WorkflowExecutionStatus.COMPLETED
    assert [order.kind for order in agent.orders] == ["offer", "stop"]
    assert nothing_is_held(plant)


async def test_an_offer_that_was_never_answered_goes_again_with_the_heartbeat(plant: Plant) -> None:
    async with plant.agent(mute=True) as agent:
        handle = await plant.submit()
        await eventually(lambda: len(agent.orders) >= 1, "an offer")
        agent.mute = False
        await agent.heartbeat()
        outcome = await handle.result()
    assert outcome.phase is Phase.SUCCEEDED
    assert len(agent.ran) == 1


async def test_a_refused_offer_is_placed_again_uncharged(plant: Plant) -> None:
    refusal = Ending(kind=EndKind.REFUSED, reason=Reason.AGENT_NO_ROOM)
    async with plant.agent(decide=in_turn(refusal, exited())):
        handle = await plant.submit(
            retries={"backoff": {"base_ms": 10, "cap_ms": 10}},
        )
        outcome = await handle.result()
    assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=2)


async def test_a_failed_task_waits_its_backoff_and_is_tried_again(plant: Plant) -> None:
    async with plant.agent(decide=in_turn(exited(1), exited(1), exited())):
        retries = {"failures": 2, "backoff": {"base_ms": 50, "cap_ms": 50}}
        outcome = await (await plant.submit(retries=retries)).result()
    assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=3)


async def test_a_task_that_waits_too_long_expires(plant: Plant) -> None:
    async with plant.agent(decide=lambda _offer: None):
        first = await plant.submit(resources={"cpu": 64})
        await eventually(in_phase(plant, first, Phase.RUNNING), "running")
        handle = await plant.submit(queue_timeout_s=1, resources={"cpu": 64})
        outcome = await asyncio.wait_for(handle.result(), 30)
    assert outcome.phase is Phase.EXPIRED


async def test_many_tasks_at_once_all_end(plant: Plant) -> None:
    async with plant.agent() as agent:
        handles = [await plant.submit(resources={"cpu": 1}) for _ in range(100)]
        outcomes = await asyncio.gather(*(handle.result() for handle in handles))
    assert {outcome.phase for outcome in outcomes} == {Phase.SUCCEEDED}
    assert len(agent.ran) == len(set(agent.ran)) == 100
    assert nothing_is_held(plant)
