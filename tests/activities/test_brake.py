"""The brake on the real thing: most clusters silent, one back, and an operator's lift."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from domain.attempt import Phase
from domain.protocol import LiftBrake
from domain.supervision import Reach
from domain.views import BrakeView
from runtime.temporal import plugin
from store.brake import brake
from store.session import reading
from tests.activities.agents import TinyAgent, exited
from tests.activities.plants import Handle, Plant, running_plant
from tests.activities.test_losses import SHORT, adds_up, beating, reach
from tests.activities.test_mishaps import in_phase, key_of, nothing_is_held, row
from tests.workflows.fakes import eventually

LEASES_S = 3 * SHORT["lease_s"]


@pytest_asyncio.fixture(loop_scope="session")
async def hasty(dev_server_env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Plant]:
    """A worker that gives up on silent clusters within seconds."""
    address = dev_server_env.client.service_client.config.target_host
    client = await Client.connect(address, plugins=[plugin()])
    async with running_plant(client, tmp_path, **SHORT) as running:
        yield running


def held(plant: Plant) -> BrakeView:
    with reading(plant.engine) as connection:
        return brake(connection)


async def running_on(plant: Plant, agent: TinyAgent) -> Handle:
    handle = await plant.submit(constraints={"clusters": [agent.cluster]})
    await eventually(in_phase(plant, handle, Phase.RUNNING), f"running on {agent.cluster}")
    return handle


def number(plant: Plant, handle: Handle) -> int:
    seen = row(plant, handle)
    assert seen is not None
    return seen.number


async def test_what_is_silent_together_is_kept_until_it_returns_or_a_person_says_otherwise(
    hasty: Plant,
) -> None:
    async with AsyncExitStack() as there:
        agents = [
            await there.enter_async_context(hasty.agent(decide=lambda _offer: None))
            for _ in range(3)
        ]
        back, alone, third = agents
        returned = await running_on(hasty, back)
        lost = await hasty.submit(constraints={"clusters": [alone.cluster, third.cluster]})
        await eventually(in_phase(hasty, lost, Phase.RUNNING), "running")
        # All fall silent, longer than any lease: nothing is replaced, there or on return.
        await eventually(lambda: held(hasty).held, "the brake")
        await asyncio.sleep(LEASES_S)
        assert (held(hasty).silent, held(hasty).counted) == (3, 3)
        assert {reach(hasty, agent) for agent in agents} == {Reach.SUSPECT}
        await there.enter_async_context(beating(back))
        await eventually(lambda: reach(hasty, back) is Reach.REACHABLE, "one is back")
        assert held(hasty).held
        assert (number(hasty, returned), number(hasty, lost)) == (1, 1)
        await back.finish(f"{key_of(returned)}#1", exited())
        assert (await returned.result()).number == 1
        # A person says that the others may be taken for lost.
        other = third if alone.live else alone
        silent = alone if alone.live else third
        await back.tell(LiftBrake(brake="clusters", by="ann", at=datetime.now(UTC)))
        await eventually(lambda: not held(hasty).held, "lifted")
        assert held(hasty).by == "ann"
        await there.enter_async_context(beating(other))
        await eventually(lambda: number(hasty, lost) == 2, "replaced after its wait")
        assert reach(hasty, silent) is Reach.FENCED
        await eventually(lambda: f"{key_of(lost)}#2" in other.live, "it runs")
        await other.finish(f"{key_of(lost)}#2", exited())
        assert (await lost.result()).number == 2
    assert nothing_is_held(hasty)
    adds_up(hasty)
