"""Search attributes of a task's workflow: set by its start, completed once, at its end."""

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from domain.stages import Done, TaskState

TEAM = SearchAttributeKey.for_keyword("DrystoneTeam")
PHASE = SearchAttributeKey.for_keyword("DrystonePhase")
PRIORITY = SearchAttributeKey.for_keyword("DrystonePriority")
CLUSTER = SearchAttributeKey.for_keyword("DrystoneCluster")


def final_attributes(state: TaskState) -> list[SearchAttributeUpdate[Any]]:
    """Phase and cluster of the end; team and priority only where the start lacked them."""
    assert isinstance(state.stage, Done), state.stage
    updates: list[SearchAttributeUpdate[Any]] = [PHASE.value_set(state.stage.outcome.phase.value)]
    if state.attempts and state.attempts[-1].cluster:
        updates.append(CLUSTER.value_set(state.attempts[-1].cluster))
    there = workflow.info().typed_search_attributes
    if there.get(TEAM) is None:
        updates.append(TEAM.value_set(state.spec.team))
    if there.get(PRIORITY) is None:
        updates.append(PRIORITY.value_set(state.spec.priority.name))
    return updates
