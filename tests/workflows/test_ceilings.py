"""What a task costs, counted from real histories: design 4 sets the ceilings."""

import asyncio
from collections.abc import Sequence

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from domain.attempt import Phase
from domain.protocol import TaskMessage
from tests.workflows.conftest import Stage, TaskHandle
from tests.workflows.fakes import WAIT_S_MAX
from tests.workflows.reports import ended, started

SIGNALED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
EVENTS_MAX = 12
ACTIONS_MAX = 5
EVENTS_WITH_STARTED_MAX = 16
EVENTS_PER_RETRY_MAX = 6
EVENTS_PER_STARTED_RETRY_MAX = 10

_ACTIONS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
}


def billable_actions(events: Sequence[HistoryEvent]) -> int:
    """As Temporal Cloud counts: all local activities of one workflow task are one action."""
    actions = sum(event.event_type in _ACTIONS for event in events)
    markers = {
        event.marker_recorded_event_attributes.workflow_task_completed_event_id
        for event in events
        if event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED
    }
    return actions + len(markers)


async def history(handle: TaskHandle) -> list[HistoryEvent]:
    return list((await handle.fetch_history()).events)


async def events_of(real: Stage, *reports: TaskMessage, failures: int = 0) -> list[HistoryEvent]:
    """The history of a task that was told these reports, each once the last was worked on."""
    async with real.worker():
        handle = await real.submit(retries={"failures": failures})
        await real.asked(1)
        for told, message in enumerate(reports, start=1):
            await real.report(handle, message)
            await worked_on(handle, told)
        outcome = await handle.result()
    assert outcome.phase is Phase.SUCCEEDED
    return await history(handle)


async def worked_on(handle: TaskHandle, reports: int) -> None:
    """So many reports have each been followed by a completed workflow task."""
    deadline = asyncio.get_running_loop().time() + WAIT_S_MAX
    while asyncio.get_running_loop().time() < deadline:
        kinds = [event.event_type for event in await history(handle)]
        signals = [at for at, kind in enumerate(kinds) if kind == SIGNALED]
        if len(signals) == reports and COMPLETED in kinds[signals[-1] :]:
            return
    raise AssertionError(f"report {reports} was not worked on")


async def test_a_short_task_costs_twelve_events_and_five_actions(real: Stage) -> None:
    events = await events_of(real, ended(1, 0))
    assert len(events) == EVENTS_MAX, [EventType.Name(e.event_type) for e in events]
    assert billable_actions(events) == ACTIONS_MAX


async def test_a_started_report_costs_four_events(real: Stage) -> None:
    events = await events_of(real, started(1), ended(1, 0))
    assert len(events) == EVENTS_WITH_STARTED_MAX


async def test_a_retry_costs_at_most_six_events(real: Stage) -> None:
    events = await events_of(real, ended(1, 1), ended(2, 1), ended(3, 0), failures=2)
    assert len(events) <= EVENTS_MAX + 2 * EVENTS_PER_RETRY_MAX


async def test_a_retry_with_its_own_started_report_costs_at_most_ten(real: Stage) -> None:
    reports = (started(1), ended(1, 1), started(2), ended(2, 0))
    events = await events_of(real, *reports, failures=1)
    assert len(events) <= EVENTS_WITH_STARTED_MAX + EVENTS_PER_STARTED_RETRY_MAX
