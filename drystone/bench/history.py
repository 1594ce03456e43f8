"""What one workflow's history cost: events, and billable actions as Temporal counts them."""

from collections.abc import Iterable

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

# Source: docs.temporal.io/cloud/actions. Search attributes given at the start are free.
_BILLED = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
        EventType.EVENT_TYPE_TIMER_STARTED,
        EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    }
)


def billable_actions(events: Iterable[HistoryEvent]) -> int:
    """All local activities of one workflow task are one action; everything else counts singly."""
    actions = 0
    tasks_with_local_activities = set()
    for event in events:
        actions += event.event_type in _BILLED
        if event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED:
            marker = event.marker_recorded_event_attributes
            if marker.marker_name == "core_local_activity":
                tasks_with_local_activities.add(marker.workflow_task_completed_event_id)
    return actions + len(tasks_with_local_activities)
