"""What waits, and what is refused: the whole path in one process, agents that behave badly."""

import asyncio
from collections.abc import Callable
from typing import Any

from domain.attempt import Ending, EndKind, Outcome, Phase
from domain.protocol import Cancel, Offer
from domain.reasons import Reason
from domain.resources import Resources
from domain.verdict import Verdict
from domain.views import TaskView
from store.audit import audit
from store.overview import machines
from store.session import reading
from store.tasks import task
from tests.activities.agents import TinyAgent, exited
from tests.activities.plants import Plant
from tests.workflows.fakes import eventually

REFUSED = Ending(kind=EndKind.REFUSED, reason=Reason.AGENT_NO_ROOM)
SOON_S = 30
HASTY = {"backoff": {"base_ms": 10, "cap_ms": 50}}


def room(cpu_milli: int) -> Resources:
    """So many cores, and memory enough."""
    return Resources(cpu_milli=cpu_milli, memory_mib=65_536)


def runs_on(_offer: Offer) -> Ending | None:
    """Until it is stopped."""
    return None


def always_refuses(_offer: Offer) -> Ending | None:
    """The planner's view of this agent is wrong for good."""
    return REFUSED


def row_of(plant: Plant, handle: Any) -> TaskView | None:
    """The task's row, once there is one."""
    with reading(plant.engine) as connection:
        return task(connection, handle.id.removeprefix("task/"))


async def why_it_waits(plant: Plant, handle: Any, *reasons: Reason) -> Verdict:
    """The verdict of a round, once there is one (with exactly these reasons, where given)."""
    seen: list[Verdict] = []

    def look() -> bool:
        row = row_of(plant, handle)
        verdict = None if row is None or row.verdict is None else row.verdict.verdict
        if verdict is None or (reasons and set(verdict.lost) != set(reasons)):
            return False
        seen.append(verdict)
        return True

    await eventually(look, f"a round says that it waits: {reasons}")
    return seen[0]


def machines_there(plant: Plant, *agents: TinyAgent) -> Callable[[], bool]:
    """Whether the machines of these agents can take work."""

    def look() -> bool:
        with reading(plant.engine) as connection:
            views = [machines(connection, cluster=agent.cluster) for agent in agents]
        return all(seen and seen[0].reachable for seen in views)

    return look


def adds_up(plant: Plant) -> None:
    """No claim holds room that no attempt uses."""
    with reading(plant.engine) as connection:
        assert audit(connection) == []


async def test_work_that_found_no_room_starts_when_a_running_task_is_cancelled(
    plant: Plant,
) -> None:
    """L03"""
    async with TinyAgent(plant.client, decide=runs_on, capacity=room(1_000)).serving() as agent:
        first = await plant.submit()
        await eventually(lambda: len(agent.live) == 1, "the first runs")
        second = await plant.submit()
        verdict = await why_it_waits(plant, second)
        assert verdict.lost == {Reason.NO_ROOM_CPU: 1}
        await agent.report(first.id.removeprefix("task/"), Cancel())
        await eventually(lambda: len(agent.ran) == 2, "the second starts", SOON_S)
        assert (await first.result()).phase is Phase.CANCELLED
        await agent.finish(agent.ran[1], exited())
        assert (await second.result()).phase is Phase.SUCCEEDED


async def test_work_that_waits_for_the_first_machine_starts_when_it_comes(plant: Plant) -> None:
    """L11"""
    handle = await plant.submit()
    verdict = await why_it_waits(plant, handle)
    assert verdict.reason is Reason.NO_MACHINES_YET
    async with TinyAgent(plant.client).serving():
        assert (await asyncio.wait_for(handle.result(), SOON_S)).phase is Phase.SUCCEEDED


async def test_an_agent_that_always_refuses_is_cooled_down_and_the_other_gets_the_task(
    plant: Plant,
) -> None:
    """L05"""
    # Packing prefers the one that the task fills, until it is cooled down for this shape.
    exact = Resources(cpu_milli=1_000, memory_mib=512)
    liar = TinyAgent(plant.client, decide=always_refuses, capacity=exact)
    honest = TinyAgent(plant.client, capacity=room(64_000))
    async with liar.serving(), honest.serving():
        await eventually(machines_there(plant, liar, honest), "both machines can take work")
        handle = await plant.submit(retries=HASTY)
        outcome = await asyncio.wait_for(handle.result(), SOON_S)
    assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=4)
    assert (len(liar.ran), len(honest.ran)) == (3, 1)
    row = row_of(plant, handle)
    assert row is not None
    assert row.cluster == honest.cluster
    adds_up(plant)


async def test_a_refusal_everywhere_is_no_hot_loop_and_says_why_it_waits(plant: Plant) -> None:
    """L07, L38"""
    async with TinyAgent(plant.client, decide=always_refuses).serving() as agent:
        handle = await plant.submit(retries=HASTY)
        await why_it_waits(plant, handle, Reason.COOLING_DOWN)
        adds_up(plant)
        assert len(agent.ran) == 3
        # Another shape is not held up by what this one has met.
        agent.decide = lambda _offer: exited()
        other = await plant.submit(resources={"cpu": "500m"})
        assert (await asyncio.wait_for(other.result(), SOON_S)).phase is Phase.SUCCEEDED
        assert len(agent.ran) == 4
        described = await handle.describe()
        assert described.history_length < 40
        await handle.signal("report", {"v": 1, "message": {"kind": "cancel"}})
        assert (await handle.result()).phase is Phase.CANCELLED


async def test_a_cancel_between_placed_and_accepted_stops_the_late_acceptance(
    plant: Plant,
) -> None:
    """L44"""
    async with TinyAgent(plant.client, decide=runs_on, mute=True).serving() as agent:
        handle = await plant.submit()
        await eventually(lambda: len(agent.orders) > 0, "the offer is delivered, not answered")
        await handle.signal("report", {"v": 1, "message": {"kind": "cancel"}})

        def stopping() -> bool:
            row = row_of(plant, handle)
            return row is not None and row.phase is Phase.STOPPING

        await eventually(stopping, "the row says that it is to stop")
        agent.mute = False
        outcome = await asyncio.wait_for(handle.result(), SOON_S)
    assert outcome.phase is Phase.CANCELLED
    assert agent.live == {}
    adds_up(plant)
    row = row_of(plant, handle)
    assert row is not None
    assert row.number == 1
