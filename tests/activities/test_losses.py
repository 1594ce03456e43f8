"""A cluster that falls silent: fenced, replaced, and back again. Short leases, real timers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from domain.attempt import Outcome, Phase, StopCause
from domain.protocol import ConfirmLost, MachineState, StopOrder
from domain.reasons import Reason
from domain.supervision import Reach
from runtime.temporal import plugin
from store.audit import audit
from store.overview import cluster
from store.session import reading
from tests.activities.agents import TinyAgent, exited
from tests.activities.plants import Plant, running_plant
from tests.activities.test_mishaps import in_phase, key_of, nothing_is_held, row
from tests.workflows.fakes import eventually

SHORT = {"heartbeat_s": 0.3, "suspect_s": 1.5, "lease_s": 2.0, "lease_margin_s": 0.5}
BEAT_S = 0.3


@pytest_asyncio.fixture(loop_scope="session")
async def hasty(dev_server_env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Plant]:
    """A worker that gives up on silent clusters within seconds."""
    address = dev_server_env.client.service_client.config.target_host
    client = await Client.connect(address, plugins=[plugin()])
    async with running_plant(client, tmp_path, **SHORT) as running:
        yield running


@asynccontextmanager
async def beating(agent: TinyAgent) -> AsyncIterator[None]:
    """Heartbeats as long as the block lasts."""

    async def beat() -> None:
        while True:
            await agent.heartbeat()
            await asyncio.sleep(BEAT_S)

    task = asyncio.create_task(beat())
    yield
    task.cancel()


def reach(plant: Plant, agent: TinyAgent) -> Reach:
    with reading(plant.engine) as connection:
        view = cluster(connection, agent.cluster)
    return Reach.ABSENT if view is None else view.state


def adds_up(plant: Plant) -> None:
    with reading(plant.engine) as connection:
        assert audit(connection) == []


async def test_a_silent_cluster_is_fenced_and_its_work_replaced(hasty: Plant) -> None:
    async with hasty.agent(decide=lambda _offer: None) as first:
        handle = await hasty.submit()
        await eventually(in_phase(hasty, handle, Phase.RUNNING), "running")
        async with hasty.agent() as second, beating(second):
            outcome = await handle.result()
            assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=2)
            assert (first.ran, second.ran) == ([f"{key_of(handle)}#1"], [f"{key_of(handle)}#2"])
            assert reach(hasty, first) is Reach.FENCED
            # It comes back: the grant names the closed number, and its room is free again.
            await first.register()
            await eventually(lambda: reach(hasty, first) is Reach.REACHABLE, "back again")
        assert first.grants[-1].closed == (f"{key_of(handle)}#1",)
    assert nothing_is_held(hasty)
    adds_up(hasty)


async def test_a_cluster_that_comes_back_in_time_goes_on(hasty: Plant) -> None:
    async with hasty.agent(decide=lambda _offer: None) as agent:
        handle = await hasty.submit()
        await eventually(in_phase(hasty, handle, Phase.RUNNING), "running")
        await eventually(lambda: reach(hasty, agent) is Reach.SUSPECT, "suspect")
        async with beating(agent):
            await eventually(lambda: reach(hasty, agent) is Reach.REACHABLE, "back again")
            await agent.finish(f"{key_of(handle)}#1", exited())
            outcome = await handle.result()
    assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=1)


async def test_a_task_without_workflow_on_a_lost_cluster_is_closed(hasty: Plant) -> None:
    async with hasty.agent(decide=lambda _offer: None):
        handle = await hasty.submit()
        await eventually(in_phase(hasty, handle, Phase.RUNNING), "running")
        await handle.terminate()
        await eventually(in_phase(hasty, handle, Phase.CANCELLED), "closed")
    seen = row(hasty, handle)
    assert seen is not None
    assert seen.outcome is not None
    assert seen.outcome.reason is Reason.WORKFLOW_GONE
    adds_up(hasty)


async def test_a_task_that_may_run_twice_is_replaced_at_the_first_suspicion(hasty: Plant) -> None:
    async with hasty.agent(decide=lambda _offer: None) as first:
        handle = await hasty.submit(on_loss="replace_at_once")
        await eventually(in_phase(hasty, handle, Phase.RUNNING), "running")
        async with hasty.agent() as second, beating(second):
            outcome = await handle.result()
    assert outcome.number == 2
    assert len(first.ran) == len(second.ran) == 1


async def test_a_task_that_waits_is_replaced_only_when_somebody_vouches(hasty: Plant) -> None:
    async with hasty.agent(decide=lambda _offer: None) as first:
        handle = await hasty.submit(on_loss="wait")
        await eventually(in_phase(hasty, handle, Phase.RUNNING), "running")
        await eventually(lambda: reach(hasty, first) is Reach.FENCED, "fenced")
        seen = row(hasty, handle)
        assert seen is not None
        assert (seen.phase, seen.number) == (Phase.RUNNING, 1)
        async with hasty.agent() as second, beating(second):
            await first.tell(ConfirmLost(by="ann", at=datetime.now(UTC)))
            outcome = await handle.result()
    assert outcome.number == 2


async def test_a_word_about_a_machine_replaces_its_work_under_an_agent_that_lives(
    plant: Plant,
) -> None:
    """Its agent has no grant to come: it hears of the closed number by a stop order."""
    async with plant.agent(decide=lambda _offer: None) as first:
        handle = await plant.submit(on_loss="wait")
        await eventually(in_phase(plant, handle, Phase.RUNNING), "running")
        async with plant.agent() as second:
            await first.heartbeat(states=(MachineState(machine="m1", reachable=False),))
            await first.tell(ConfirmLost(machine="m1", by="ann", at=datetime.now(UTC)))
            outcome = await handle.result()
            assert (outcome.number, second.ran) == (2, [f"{key_of(handle)}#2"])
            await eventually(lambda: not first.live, "the first is told to stop")
            stops = [(o.number, o.cause) for o in first.orders if isinstance(o, StopOrder)]
            assert stops == [(1, StopCause.SUPERSEDED)]
        assert reach(plant, first) is Reach.REACHABLE
    assert nothing_is_held(plant)
    adds_up(plant)
