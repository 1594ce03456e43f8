"""What a task costs, counted from real histories: design 4 sets the ceilings."""

from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from domain.attempt import Ending, EndKind, Outcome, Phase
from domain.protocol import Ended, Started
from domain.reasons import Reason
from tests.workflows.conftest import Stage, TaskHandle

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

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


def ended(number: int, code: int) -> Ended:
    reason = Reason.NONZERO_EXIT if code else None
    return Ended(
        number=number,
        cluster="north",
        machine="m1",
        at=NOW,
        ending=Ending(kind=EndKind.EXITED, exit_code=code, reason=reason),
    )


def started(number: int) -> Started:
    return Started(number=number, cluster="north", machine="m1", at=NOW)


async def settled(stage: Stage, times: int) -> None:
    """The ledger was asked so often: what was sent before has been worked on."""
    from tests.workflows.fakes import eventually

    await eventually(lambda: len(stage.ledger.asked) >= times, f"{times} questions")


async def history(handle: TaskHandle) -> list[HistoryEvent]:
    return list((await handle.fetch_history()).events)


async def test_a_short_task_costs_twelve_events_and_five_actions(real: Stage) -> None:
    async with real.worker():
        handle = await real.submit()
        await settled(real, 1)
        await real.report(handle, ended(1, 0))
        outcome = await handle.result()
    assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=1)
    events = await history(handle)
    assert len(events) == EVENTS_MAX, [EventType.Name(e.event_type) for e in events]
    assert billable_actions(events) == ACTIONS_MAX
