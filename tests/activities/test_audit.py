"""An audit on a real server: begun by its schedule, or by hand; with an agent and a real ledger."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from sqlalchemy import text
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from domain.attempt import Ending, EndKind, Phase, StopCause
from domain.audit import AUDIT_SCHEDULE, AuditReport, Concluded, Fault
from domain.ids import WORKFLOW_QUEUE, attempt_hash
from domain.protocol import Orphan, RunningDigest
from runtime.settings import Settings
from store.audit import audit
from store.differences import report
from store.overview import machine
from store.rolls import roll_calls
from store.session import reading, transaction
from tests.activities.agents import TinyAgent, exited
from tests.activities.plants import Handle, Plant
from tests.activities.test_mishaps import in_phase, key_of, nothing_is_held
from tests.workflows.fakes import eventually
from worker.schedule import keep_audit_schedule
from workflows.audit import AuditWorkflow


async def audit_begun(plant: Plant) -> WorkflowHandle[AuditWorkflow, Concluded]:
    """One audit, now."""
    return await plant.client.start_workflow(
        AuditWorkflow.run, id=f"audit-{uuid4()}", task_queue=WORKFLOW_QUEUE
    )


async def audited(plant: Plant) -> Concluded:
    """What it has come to."""
    return await (await audit_begun(plant)).result()


def told(plant: Plant) -> AuditReport:
    with reading(plant.engine) as connection:
        return report(connection)


def damage(plant: Plant, *statements: str) -> None:
    with transaction(plant.engine) as connection:
        for statement in statements:
            connection.execute(text(statement))


async def count_told(plant: Plant, agent: TinyAgent) -> None:
    """A heartbeat with the digest of what the agent holds, until the ledger has taken it."""
    xor = 0
    for attempt in agent.live:
        xor ^= attempt_hash(attempt)
    running = (RunningDigest(machine="m1", count=len(agent.live), xor=xor),)
    await agent.heartbeat(running=running)

    def doubted() -> bool:
        with reading(plant.engine) as connection:
            return bool(roll_calls(connection))

    await eventually(doubted, "the machine is doubted")


async def runs_unclaimed(plant: Plant, agent: TinyAgent) -> Handle:
    """An attempt that its agent goes on with, though the ledger has taken its end long ago."""
    handle = await plant.submit(resources={"cpu": 1})
    await eventually(in_phase(plant, handle, Phase.RUNNING), "running")
    attempt = f"{key_of(handle)}#1"
    await agent.report(key_of(handle), agent.ended_report(agent.live[attempt], exited()))
    await handle.result()
    assert attempt in agent.live
    return handle


async def handed_over(agent: TinyAgent, handle: Handle) -> None:
    """The agent has learnt that no workflow waits for this ending."""
    stopped = Ending(kind=EndKind.STOPPED, stop_cause=StopCause.SUPERSEDED)
    key, now = key_of(handle), datetime.now(UTC)
    await agent.tell(Orphan(key=key, number=1, machine="m1", ending=stopped, at=now))


def used_cpu(plant: Plant, agent: TinyAgent) -> int:
    with reading(plant.engine) as connection:
        seen = machine(connection, agent.cluster, "m1")
    assert seen is not None
    return seen.used.cpu_milli


async def test_an_attempt_without_a_claim_is_found_and_ended_by_its_own_agent(
    plant: Plant,
) -> None:
    async with plant.agent(decide=lambda _offer: None) as agent:
        handle = await runs_unclaimed(plant, agent)
        beside = await plant.submit(resources={"cpu": 1})
        await eventually(in_phase(plant, beside, Phase.RUNNING), "running beside it")
        damage(plant, "UPDATE claim SET claimed_at = claimed_at - 60000000, to_deliver = 0")
        await count_told(plant, agent)
        assert (await audited(plant)).standing == 1
        (stands,) = told(plant).standing
        assert (stands.fault, stands.subject) == (
            Fault.RUNS_WITHOUT_CLAIM,
            f"{key_of(handle)}#1",
        )
        await eventually(lambda: list(agent.live) == [f"{key_of(beside)}#1"], "it is stopped")
        assert used_cpu(plant, agent) == 2_000
        await handed_over(agent, handle)
        await eventually(lambda: used_cpu(plant, agent) == 1_000, "its own ending releases it")
        await agent.finish(f"{key_of(beside)}#1", exited())
        await beside.result()
        await eventually(lambda: nothing_is_held(plant), "nothing is held")
        await audited(plant)
        assert told(plant).standing == ()
        assert told(plant).counts[Fault.RUNS_WITHOUT_CLAIM].healed == 1
    with reading(plant.engine) as connection:
        assert audit(connection) == []


async def test_a_ledger_that_does_not_add_up_is_healed_while_work_goes_on(plant: Plant) -> None:
    async with plant.agent(decide=lambda _offer: None) as agent:
        handle = await plant.submit()
        await eventually(in_phase(plant, handle, Phase.RUNNING), "running")
        damage(plant, "UPDATE machine SET used_cpu_milli = 1", "UPDATE usage SET gpu = 9")
        concluded = await audited(plant)
        assert (concluded.found, concluded.healed, concluded.standing) == (2, 2, 0)
        await agent.finish(f"{key_of(handle)}#1", exited())
        await handle.result()
    assert nothing_is_held(plant)
    assert (await audited(plant)).found == 0
    last = told(plant)
    assert last.ended_at is not None
    assert last.ended_at <= datetime.now(UTC)
    assert {one.fault for one in last.healed} == {
        Fault.USED_IS_NOT_THE_SUM,
        Fault.QUOTA_IS_NOT_THE_SUM,
    }


async def test_a_worker_makes_the_schedule_once_and_brings_its_interval_up_to_date(
    plant: Plant,
) -> None:
    client: Client = plant.client
    with suppress(RPCError):  # Another test's worker may have made it.
        await client.get_schedule_handle(AUDIT_SCHEDULE).delete()
    try:
        await keep_audit_schedule(client, plant.settings)
        await eventually(lambda: told(plant).ended_at is not None, "the first audit, at once")
        await keep_audit_schedule(client, plant.settings)
        often = Settings(data_dir=plant.settings.data_dir, audit_interval_s=60)
        await keep_audit_schedule(client, often)
        described = await client.get_schedule_handle(AUDIT_SCHEDULE).describe()
        (interval,) = described.schedule.spec.intervals
        assert interval.every.total_seconds() == 60
        assert described.info.num_actions == 1
    finally:
        await client.get_schedule_handle(AUDIT_SCHEDULE).delete()


async def test_a_server_without_schedules_keeps_no_worker_from_working(
    time_skipping_env: WorkflowEnvironment, tmp_path: Path
) -> None:
    await keep_audit_schedule(time_skipping_env.client, Settings(data_dir=tmp_path))
