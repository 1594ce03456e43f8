"""What the API asks of Temporal: start, signal, wait, within a time. Knows no HTTP, no ledger."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta

from pydantic import ValidationError
from temporalio.client import (
    Client,
    ScheduleOverlapPolicy,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from domain.attempt import Outcome, Phase
from domain.audit import AUDIT_SCHEDULE
from domain.errors import BusyError, UnavailableError
from domain.ids import (
    WORKFLOW_QUEUE,
    cluster_workflow_id,
    partition_of,
    placement_workflow_id,
    split_task_key,
    task_workflow_id,
)
from domain.protocol import Cancel, ClusterEnvelope, ClusterMessage, TaskEnvelope
from domain.reasons import Reason
from domain.task import SubmitTask, TaskSpec, body_digest
from domain.views import TaskView
from runtime.settings import Settings
from runtime.temporal import FIRST, PHASE, PRIORITY, TEAM
from workflows.cluster import ClusterWorkflow
from workflows.placement import PlacementWorkflow
from workflows.task import DIGEST_MEMO, TaskWorkflow

SENDER = "api"
SUMMARY_CHARS_MAX = 120
STARTS_AT_ONCE_MAX = 8
"""More of them would take the server from the tasks that run already, and start none sooner."""
TURN_S_MAX = 10.0
LONG_WAITS_MAX = 500
"""The server's limit on long polls is 1,200 for all clients of a namespace."""
_AWAY = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.UNKNOWN,
    }
)


class Gateway:
    """Temporal, as the API sees it."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._long_waits = 0
        self._turns = asyncio.Semaphore(STARTS_AT_ONCE_MAX)

    async def start(self, spec: TaskSpec, digest: str) -> bool:
        """Start the task's workflow; False when that id was used before."""
        task_timeout = timedelta(seconds=self._settings.workflow_task_timeout_s)
        # A burst waits here and not in the server, where it would run into the time limit.
        async with self._turn(), self._asking():
            try:
                await self._client.start_workflow(
                    TaskWorkflow.run,
                    args=[spec],
                    id=task_workflow_id(spec.key),
                    task_queue=WORKFLOW_QUEUE,
                    # Short: a killed worker holds a new task up no longer than this.
                    task_timeout=task_timeout,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    memo={DIGEST_MEMO: digest},
                    search_attributes=_attributes(spec),
                    static_summary=summary(spec),
                    rpc_timeout=self._limit,
                )
            except WorkflowAlreadyStartedError:
                return False
        return True

    async def submitted(self, key: str) -> TaskView | None:
        """A task whose row is still to be written, as its workflow's input tells it.

        None when there is no such workflow, or when it has ended without a row: it was refused.
        Terminated before its first step, it never got one: the task was accepted, and is gone.
        """
        handle = self._client.get_workflow_handle(task_workflow_id(key))
        async with self._asking():
            try:
                described = await handle.describe(rpc_timeout=self._limit)
                terminated = described.status is WorkflowExecutionStatus.TERMINATED
                if described.close_time is not None and not terminated:
                    return None
                events = handle.fetch_history_events(page_size=1, rpc_timeout=self._limit)
                first = await anext(events)
            except RPCError as error:
                if is_missing(error):
                    return None
                raise
        payloads = first.workflow_execution_started_event_attributes.input.payloads
        try:
            spec = SubmitTask.model_validate_json(payloads[0].data if payloads else b"")
        except ValidationError:
            return None
        view = new_view(spec, body_digest(spec), described.start_time)
        return gone_view(view, described.close_time) if described.close_time else view

    async def cancel(self, key: str, *, abandon: bool, by: str) -> bool:
        """Ask the task's workflow to end; False when there is no such workflow any more."""
        handle = self._client.get_workflow_handle(task_workflow_id(key))
        message = TaskEnvelope(sender=SENDER, message=Cancel(abandon=abandon, by=by))
        async with self._asking():
            try:
                await handle.signal(TaskWorkflow.report, message, rpc_timeout=self._limit)
            except RPCError as error:
                if is_missing(error):
                    return False
                raise
        return True

    async def gone(self, key: str) -> None:
        """Tell placement that a waiting task has no workflow: it closes the row."""
        team, _ = split_task_key(key)
        partition = partition_of(team, self._settings.partitions)
        async with self._asking():
            await self._client.start_workflow(
                PlacementWorkflow.run,
                id=placement_workflow_id(partition),
                task_queue=WORKFLOW_QUEUE,
                priority=FIRST,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal="gone",
                start_signal_args=[key],
                task_timeout=timedelta(seconds=self._settings.workflow_task_timeout_s),
                rpc_timeout=self._limit,
            )

    async def tell_cluster(self, cluster: str, message: ClusterMessage) -> bool:
        """Hand a message to a cluster's workflow; False when there is none."""
        handle = self._client.get_workflow_handle(cluster_workflow_id(cluster))
        async with self._asking():
            try:
                await handle.signal(
                    ClusterWorkflow.tell,
                    ClusterEnvelope(sender=SENDER, message=message),
                    rpc_timeout=self._limit,
                )
            except RPCError as error:
                if is_missing(error):
                    return False
                raise
        return True

    async def audit_now(self) -> None:
        """Begin an audit, unless one is under way. UnavailableError while no worker ever ran."""
        handle = self._client.get_schedule_handle(AUDIT_SCHEDULE)
        async with self._asking():
            try:
                await handle.trigger(overlap=ScheduleOverlapPolicy.SKIP, rpc_timeout=self._limit)
            except RPCError as error:
                if is_missing(error):
                    raise UnavailableError("no worker has made the audit's schedule yet") from error
                raise

    async def until_ended(self, key: str, within_s: float) -> None:
        """Return when the task's workflow has ended, at the latest after `within_s`.

        Returns early when it cannot tell: the caller reads the row, and asks again or not.
        """
        if self._long_waits >= LONG_WAITS_MAX:
            return
        self._long_waits += 1
        try:
            handle = self._client.get_workflow_handle(task_workflow_id(key))
            # RuntimeError: a client that never reached the server yet.
            with suppress(WorkflowFailureError, RPCError, RuntimeError, TimeoutError):
                async with asyncio.timeout(within_s):
                    await handle.result()
        finally:
            self._long_waits -= 1

    async def healthy(self) -> None:
        """UnavailableError unless the server answers for our namespace."""
        async with self._asking():
            await self._client.count_workflows("WorkflowId = 'none'", rpc_timeout=self._limit)

    @property
    def _limit(self) -> timedelta:
        return timedelta(seconds=self._settings.temporal_answer_s)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One of a bounded number of starts at once."""
        try:
            async with asyncio.timeout(TURN_S_MAX):
                await self._turns.acquire()
        except TimeoutError:
            raise BusyError("too many submissions at once: nothing was accepted") from None
        try:
            yield
        finally:
            self._turns.release()

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Turn "not there" and "too late" into UnavailableError; other errors are bugs and pass."""
        try:
            async with asyncio.timeout(self._settings.temporal_answer_s):
                yield
        except TimeoutError:
            raise UnavailableError("Temporal does not answer in time") from None
        except RPCError as error:
            if error.status in _AWAY or is_missing_namespace(error):
                raise UnavailableError(f"Temporal cannot be asked now: {error.message}") from error
            raise
        except RuntimeError as error:
            # The first call of a lazy client connects, and says so in this way.
            if "connect" not in str(error).lower():
                raise
            raise UnavailableError("Temporal cannot be reached") from error


def new_view(spec: TaskSpec, digest: str, at: datetime) -> TaskView:
    """A task that has been accepted and has no row yet."""
    return TaskView(
        key=spec.key,
        team=spec.team,
        id=spec.id,
        phase=Phase.PENDING,
        spec=spec,
        digest=digest,
        number=0,
        enqueued_at=at,
        pending_since=at,
        not_before=at,
        updated_at=at,
    )


def gone_view(view: TaskView, at: datetime) -> TaskView:
    """The same task after its workflow was terminated before it had a row."""
    outcome = Outcome(phase=Phase.CANCELLED, reason=Reason.WORKFLOW_GONE)
    changed = {"phase": outcome.phase, "outcome": outcome, "ended_at": at, "updated_at": at}
    return view.model_copy(update=changed)


def is_missing(error: RPCError) -> bool:
    """The workflow is not known or has ended (and not: the namespace is not known)."""
    return error.status is RPCStatusCode.NOT_FOUND and not is_missing_namespace(error)


def is_missing_namespace(error: RPCError) -> bool:
    """The server answers, but not for our namespace (an empty server that was just started)."""
    return error.status is RPCStatusCode.NOT_FOUND and "namespace" in error.message.lower()


def summary(spec: TaskSpec) -> str:
    """One line for the Web UI's list."""
    line = f"{spec.priority.name} {spec.key}: {shlex.join(spec.command)}"
    line = " ".join(line.split())
    return line if len(line) <= SUMMARY_CHARS_MAX else line[: SUMMARY_CHARS_MAX - 3] + "..."


def _attributes(spec: TaskSpec) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(TEAM, spec.team),
            SearchAttributePair(PHASE, Phase.PENDING.value),
            SearchAttributePair(PRIORITY, spec.priority.name),
        ]
    )
