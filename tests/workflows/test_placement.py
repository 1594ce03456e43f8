"""PlacementWorkflow: wiring only."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from domain.ids import TaskKey
from domain.partition import GoneTasks, PlaceRounds, RoundsDone
from tests.workflows.conftest import Stage
from tests.workflows.fakes import eventually
from workflows.placement import PlacementWorkflow

Handle = WorkflowHandle[PlacementWorkflow, None]


async def start(stage: Stage, partition: int) -> Handle:
    return await stage.client.start_workflow(
        PlacementWorkflow.run, id=f"placement/{partition}", task_queue=stage.queue
    )


async def end(handle: WorkflowHandle[Any, Any]) -> None:
    """Once nothing is under way: the time-skipping server's clock waits for what a terminated
    workflow had begun."""
    await handle.query("__temporal_workflow_metadata")
    await handle.terminate()


def a_partition() -> int:
    """One that no other test has used on this server."""
    return uuid4().int % 10**9


async def rounds_asked(stage: Stage, times: int) -> None:
    await eventually(lambda: len(stage.rounds.asked) >= times, f"{times} rounds")


async def test_a_run_begins_with_a_round_and_each_ring_asks_for_another(skipping: Stage) -> None:
    async with skipping.worker():
        partition = a_partition()
        handle = await start(skipping, partition)
        await rounds_asked(skipping, 1)
        await handle.signal(PlacementWorkflow.ring)
        await rounds_asked(skipping, 2)
        await end(handle)
    assert skipping.rounds.took(PlaceRounds).partition == partition
    skipping.rounds.took(PlaceRounds)
    skipping.rounds.nothing_left()


async def test_an_idle_partition_adds_nothing_to_its_history(real: Stage) -> None:
    """Without a timer and with nothing pending it can only be woken from outside."""
    async with real.worker():
        handle = await start(real, a_partition())
        await rounds_asked(real, 1)
        await handle.query("__temporal_workflow_metadata")  # All that was to be done is done.
        events = (await handle.fetch_history()).events
        described = await handle.describe()
        await end(handle)
    assert EventType.EVENT_TYPE_TIMER_STARTED not in [event.event_type for event in events]
    assert not described.raw_description.pending_activities
    assert not described.raw_description.HasField("pending_workflow_task")


async def test_a_row_that_falls_due_rings_by_itself(skipping: Stage) -> None:
    async with skipping.worker():
        due = await skipping.env.get_current_time() + timedelta(minutes=5)
        skipping.rounds.answers = [RoundsDone(rounds=1, next_due=due)]
        handle = await start(skipping, a_partition())
        await rounds_asked(skipping, 1)
        await skipping.env.sleep(timedelta(minutes=4))
        assert len(skipping.rounds.asked) == 1
        await skipping.env.sleep(timedelta(minutes=2))
        await rounds_asked(skipping, 2)
        await end(handle)


async def test_rounds_that_ran_out_of_time_are_asked_for_again(skipping: Stage) -> None:
    skipping.rounds.answers = [RoundsDone(rounds=9, more=True)]
    async with skipping.worker():
        handle = await start(skipping, a_partition())
        await rounds_asked(skipping, 2)
        await end(handle)


async def test_a_task_without_workflow_is_closed(skipping: Stage) -> None:
    async with skipping.worker():
        handle = await start(skipping, a_partition())
        await handle.signal(PlacementWorkflow.gone, "blue/t1")
        await eventually(
            lambda: any(isinstance(one, GoneTasks) for one in skipping.rounds.asked), "closing"
        )
        await end(handle)
    gone = [one for one in skipping.rounds.asked if isinstance(one, GoneTasks)]
    assert gone == [GoneTasks(keys=(TaskKey("blue/t1"),))]


async def test_what_a_starter_passes_is_no_state(skipping: Stage) -> None:
    """The API starts it with the partition's number; only a run before may hand over a state."""
    async with skipping.worker():
        partition = a_partition()
        handle = await skipping.client.start_workflow(
            "PlacementWorkflow", partition, id=f"placement/{partition}", task_queue=skipping.queue
        )
        await rounds_asked(skipping, 1)
        await end(handle)


async def test_a_long_history_goes_on_in_a_new_run(rolling: Stage) -> None:
    async with rolling.worker():
        handle = await start(rolling, a_partition())
        first = (await handle.describe()).run_id
        await rounds_asked(rolling, 1)  # A ring before the first round is answered by it.
        for number in range(2, 12):
            await handle.signal(PlacementWorkflow.ring)
            await rounds_asked(rolling, number)
        current = rolling.client.get_workflow_handle(handle.id)
        assert (await current.describe()).run_id != first
        await end(current)
