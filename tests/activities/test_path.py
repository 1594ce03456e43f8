"""The whole path in one process: submit, enqueue, ring, round, offer, deliver, ended, settle."""

from domain.attempt import Outcome, Phase
from tests.activities.plants import Plant


async def test_a_task_runs_and_succeeds(plant: Plant) -> None:
    async with plant.agent() as agent:
        handle = await plant.submit()
        outcome = await handle.result()
    assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=1)
    assert agent.ran == [f"{handle.id.removeprefix('task/')}#1"]
