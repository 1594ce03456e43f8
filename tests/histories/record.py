"""`make histories`: records the history of every path on a real server, for replay in CI.

    python -m tests.histories.record [path ...]      (all when none is named)

A recorded history is never changed, only added to: it stands for the workflows that ran with the
code of its day. A path that is recorded again gets a new file, named after the day.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError
from temporalio.testing import WorkflowEnvironment

from domain.attempt import Ending, EndKind, Phase, StopCause
from domain.ids import cluster_workflow_id
from domain.protocol import Cancel, LiftBrake, TaskEnvelope
from domain.reasons import Reason
from runtime.temporal import SEARCH_ATTRIBUTES, plugin, temporal_binary
from store.orders import request_stop
from store.session import transaction
from tests.activities.agents import TinyAgent, exited
from tests.activities.plants import Handle, Plant, running_plant
from tests.activities.test_audit import audit_begun, count_told, damage, runs_unclaimed
from tests.activities.test_mishaps import in_phase, in_turn, key_of, reset
from tests.workflows.fakes import eventually

FOLDER = Path(__file__).parent
SHORT_LEASE = {
    "heartbeat_s": 0.3,
    "suspect_s": 1.0,
    "lease_s": 2.0,
    "lease_margin_s": 0.5,
}
Scenario = Callable[[Plant, TinyAgent], Awaitable[Handle]]


async def success(plant: Plant, agent: TinyAgent) -> Handle:
    handle = await plant.submit()
    await handle.result()
    return handle


async def retry(plant: Plant, agent: TinyAgent) -> Handle:
    agent.decide = in_turn(exited(1), exited(2), exited())
    handle = await plant.submit(retries={"failures": 2, "backoff": {"base_ms": 50}})
    await handle.result()
    return handle


async def failure(plant: Plant, agent: TinyAgent) -> Handle:
    agent.decide = in_turn(exited(3))
    handle = await plant.submit()
    await handle.result()
    return handle


async def refusal(plant: Plant, agent: TinyAgent) -> Handle:
    refused = Ending(kind=EndKind.REFUSED, reason=Reason.AGENT_NO_ROOM)
    agent.decide = in_turn(refused, exited())
    handle = await plant.submit(retries={"backoff": {"base_ms": 50}})
    await handle.result()
    return handle


async def run_timeout(plant: Plant, agent: TinyAgent) -> Handle:
    ended = Ending(
        kind=EndKind.STOPPED, stop_cause=StopCause.RUN_TIMEOUT, reason=Reason.RUN_TIMEOUT
    )
    agent.decide = in_turn(ended)
    handle = await plant.submit(run_timeout_s=1)
    await handle.result()
    return handle


async def _running(plant: Plant, agent: TinyAgent, **changes: Any) -> Handle:
    agent.decide = lambda _offer: None
    handle = await plant.submit(**changes)
    await eventually(in_phase(plant, handle, Phase.RUNNING), "running")
    return handle


async def cancel_running(plant: Plant, agent: TinyAgent) -> Handle:
    handle = await _running(plant, agent)
    await handle.signal("report", TaskEnvelope(message=Cancel(by="ann")))
    await handle.result()
    return handle


async def cancel_by_temporal(plant: Plant, agent: TinyAgent) -> Handle:
    handle = await _running(plant, agent)
    await handle.cancel()
    await handle.result()
    return handle


async def cancel_pending(plant: Plant, agent: TinyAgent) -> Handle:
    blocking = await _running(plant, agent, resources={"cpu": 64})
    handle = await plant.submit(resources={"cpu": 64})
    await eventually(in_phase(plant, handle, Phase.PENDING), "waiting")
    await handle.signal("report", TaskEnvelope(message=Cancel()))
    await handle.result()
    await blocking.cancel()
    await blocking.result()
    return handle


async def cancel_offered(plant: Plant, agent: TinyAgent) -> Handle:
    agent.mute = True
    handle = await plant.submit()
    await eventually(in_phase(plant, handle, Phase.OFFERED), "offered")
    await handle.signal("report", TaskEnvelope(message=Cancel()))
    await eventually(in_phase(plant, handle, Phase.STOPPING), "stopping")
    agent.mute = False
    await agent.heartbeat()
    await handle.result()
    return handle


async def queue_timeout(plant: Plant, agent: TinyAgent) -> Handle:
    blocking = await _running(plant, agent, resources={"cpu": 64})
    handle = await plant.submit(queue_timeout_s=1, resources={"cpu": 64})
    await handle.result()
    await blocking.cancel()
    await blocking.result()
    return handle


async def preempted(plant: Plant, agent: TinyAgent) -> Handle:
    """The stop row is written by hand until there is preemption."""
    handle = await _running(plant, agent)
    agent.decide = lambda _offer: exited()
    with transaction(plant.engine) as connection:
        request_stop(connection, key_of(handle), StopCause.PREEMPT, datetime.now(UTC))
    await agent.heartbeat()
    await handle.result()
    return handle


async def orphaned(plant: Plant, agent: TinyAgent) -> Handle:
    handle = await _running(plant, agent)
    await handle.terminate()
    await agent.orphan(f"{key_of(handle)}#1", exited())
    await eventually(in_phase(plant, handle, Phase.CANCELLED), "closed")
    return handle


async def reset_while_running(plant: Plant, agent: TinyAgent) -> Handle:
    handle = await _running(plant, agent)
    again = await reset(plant, handle, signals=False)
    await agent.finish(f"{key_of(handle)}#1", exited())
    await again.result()
    return again


async def refused_submission(plant: Plant, agent: TinyAgent) -> Handle:
    handle = await plant.submit(resources={"cpu": 1_000})
    with suppress(WorkflowFailureError):
        await handle.result()
    return handle


async def fenced_and_replaced(plant: Plant, agent: TinyAgent) -> Handle:
    """The first agent falls silent; the second, which has joined meanwhile, runs the next."""
    handle = await _running(plant, agent)
    async with plant.agent() as second:
        beating = asyncio.create_task(_beat(second))
        await handle.result()
        beating.cancel()
    return handle


async def _beat(agent: TinyAgent) -> None:
    while True:
        await agent.heartbeat()
        await asyncio.sleep(0.3)


async def continued(plant: Plant, agent: TinyAgent) -> Handle:
    """The server suggests a new run after thirty events."""
    handle = await _running(plant, agent)
    for number in range(40):
        await handle.signal("report", {"v": 1, "note": number})
    await agent.finish(f"{key_of(handle)}#1", exited())
    await handle.result()
    return handle


TASKS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        success,
        retry,
        failure,
        refusal,
        run_timeout,
        cancel_running,
        cancel_by_temporal,
        cancel_pending,
        cancel_offered,
        queue_timeout,
        preempted,
        orphaned,
        reset_while_running,
        refused_submission,
    )
}


RINGS_MAX = 1_000


@asynccontextmanager
async def server(*extra: str) -> AsyncIterator[Client]:
    """A real one, in memory."""
    env = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(temporal_binary()),
        dev_server_log_level="error",
        dev_server_extra_args=list(extra),
        search_attributes=SEARCH_ATTRIBUTES,
        plugins=[plugin(strict=True)],
    )
    yield env.client
    await env.shutdown()


async def save(
    client: Client, folder: str, name: str, workflow_id: str, run_id: str | None
) -> None:
    """Write one run's history down, under a name that is still free."""
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    history = await handle.fetch_history()
    target = FOLDER / folder / f"{name}.json"
    if target.exists():
        target = target.with_stem(f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    target.parent.mkdir(exist_ok=True)
    # Replay reads no stack trace, and it would name folders of this machine.
    told = json.loads(history.to_json(), object_hook=_without_stack_trace)
    target.write_text(json.dumps(told, indent=2))
    print(f"{folder}/{target.name}: {len(history.events)} events")


def _without_stack_trace(read: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in read.items() if name != "stackTrace"}


async def record_tasks(names: set[str]) -> None:
    async with server() as client:
        for name, scenario in TASKS.items():
            if names and name not in names:
                continue
            with tempfile.TemporaryDirectory() as folder:
                async with running_plant(client, Path(folder)) as plant:
                    async with plant.agent() as agent:
                        handle = await scenario(plant, agent)
                        run_id = handle.run_id or handle.first_execution_run_id
                        await save(client, "task", name, handle.id, run_id)
                        if name == "success":
                            cluster = cluster_workflow_id(agent.cluster)
                            await save(client, "cluster", "deliveries", cluster, None)
                            await save(client, "placement", "rounds", "placement/0", None)


async def record_loss() -> None:
    async with server() as client:
        with tempfile.TemporaryDirectory() as folder:
            async with running_plant(client, Path(folder), **SHORT_LEASE) as plant:
                async with plant.agent() as agent:
                    handle = await fenced_and_replaced(plant, agent)
                    await save(client, "task", "fenced_and_replaced", handle.id, None)
                    cluster = cluster_workflow_id(agent.cluster)
                    await save(client, "cluster", "silent_then_fenced", cluster, None)


async def record_rollover() -> None:
    """Every run of each workflow, from one that began new to one that was continued."""
    flag = "limit.historyCount.suggestContinueAsNew=30"
    async with server("--dynamic-config-value", flag) as client:
        with tempfile.TemporaryDirectory() as folder:
            async with running_plant(client, Path(folder)) as plant:
                async with plant.agent() as agent:
                    handle = await continued(plant, agent)
                    for _ in range(12):
                        await agent.heartbeat()
                    cluster = cluster_workflow_id(agent.cluster)
                    first = handle.first_execution_run_id
                    await save(client, "task", "continued_first_run", handle.id, first)
                    await save(client, "task", "continued_last_run", handle.id, None)
                    await save(client, "cluster", "continued_last_run", cluster, None)
                    await partition_continued(plant, agent)


async def partition_continued(plant: Plant, agent: TinyAgent) -> None:
    """Rung until its next run has begun, which then places a task."""
    partition = plant.client.get_workflow_handle("placement/0")
    first = (await partition.describe()).run_id
    for _ in range(RINGS_MAX):
        if (await partition.describe()).run_id != first:
            break
        await partition.signal("ring")
        await asyncio.sleep(0.1)
    handle = await _running(plant, agent)
    await agent.finish(f"{key_of(handle)}#1", exited())
    await handle.result()
    await save(plant.client, "placement", "continued_first_run", partition.id, first)
    await save(plant.client, "placement", "continued_last_run", partition.id, None)


async def record_audits() -> None:
    """One that asks nobody, one that asks an agent twice; and a brake lifted for machines."""
    async with server() as client:
        with tempfile.TemporaryDirectory() as folder:
            async with running_plant(client, Path(folder)) as plant:
                async with plant.agent(decide=lambda _offer: None) as agent:
                    quiet = await audit_begun(plant)
                    await quiet.result()
                    await save(client, "audit", "quiet", quiet.id, None)
                    await runs_unclaimed(plant, agent)
                    damage(plant, "UPDATE claim SET claimed_at = 0, to_deliver = 0")
                    await count_told(plant, agent)
                    asking = await audit_begun(plant)
                    await asking.result()
                    await save(client, "audit", "asks_twice", asking.id, None)
                    agent.braked = True
                    await agent.tell(LiftBrake(brake="machines", by="ann", at=datetime.now(UTC)))
                    await eventually(lambda: not agent.braked, "lifted")
                    await agent.tell(LiftBrake(brake="clusters", by="ann", at=datetime.now(UTC)))
                    cluster = cluster_workflow_id(agent.cluster)
                    await save(client, "cluster", "brake_lifted", cluster, None)


async def main(names: set[str]) -> None:
    await record_tasks(names)
    if not names or "loss" in names:
        await record_loss()
    if not names or "rollover" in names:
        await record_rollover()
    if not names or "audits" in names:
        await record_audits()


if __name__ == "__main__":
    asyncio.run(main(set(sys.argv[1:])))
