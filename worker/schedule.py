"""The schedule on which audits begin: made, or brought up to date, whenever a worker starts."""

from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from domain.audit import AUDIT_SCHEDULE, AUDIT_WORKFLOW_ID
from domain.ids import WORKFLOW_QUEUE
from runtime.settings import Settings
from runtime.telemetry import logger
from workflows.audit import AuditWorkflow

_NOT_OURS_TO_MAKE = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED)


def audit_schedule(settings: Settings) -> Schedule:
    """One audit at a time: what falls due while another is under way is left out."""
    every = timedelta(seconds=settings.audit_interval_s)
    return Schedule(
        action=ScheduleActionStartWorkflow(
            AuditWorkflow.run,
            id=AUDIT_WORKFLOW_ID,
            task_queue=WORKFLOW_QUEUE,
            task_timeout=timedelta(seconds=settings.workflow_task_timeout_s),
            static_summary="claims = quota = what agents report",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=every)]),
        policy=SchedulePolicy(
            overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(minutes=1)
        ),
    )


async def keep_audit_schedule(client: Client, settings: Settings) -> None:
    """Idempotent, whoever comes first; an interval that was changed holds from now on.

    A schedule that an operator has paused stays paused.
    """
    try:
        await _keep(client, audit_schedule(settings))
    except RPCError as error:
        if error.status not in _NOT_OURS_TO_MAKE:
            raise
        # Work goes on without audits, until somebody who may makes the schedule.
        logger().error("no schedule of audits", schedule=AUDIT_SCHEDULE, error=error.message)


async def _keep(client: Client, wanted: Schedule) -> None:
    try:
        await client.create_schedule(AUDIT_SCHEDULE, wanted, trigger_immediately=True)
    except ScheduleAlreadyRunningError:
        handle = client.get_schedule_handle(AUDIT_SCHEDULE)
        await handle.update(lambda found: _updated(found, wanted))


def _updated(found: ScheduleUpdateInput, wanted: Schedule) -> ScheduleUpdate | None:
    known = found.description.schedule
    same_spec = known.spec.intervals == wanted.spec.intervals
    if same_spec and known.policy == wanted.policy:
        return None
    wanted.state = known.state
    return ScheduleUpdate(schedule=wanted)
