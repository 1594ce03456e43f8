"""Every recorded history still replays with today's code, in the strict sandbox."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from runtime.temporal import plugin
from tests.workflows.conftest import WORKFLOWS

HISTORIES = Path(__file__).parent.parent / "histories"
RECORDED = sorted(HISTORIES.glob("*/*.json"))
PATHS = {
    "task": {
        "success",
        "retry",
        "failure",
        "refusal",
        "run_timeout",
        "cancel_running",
        "cancel_by_temporal",
        "cancel_pending",
        "cancel_offered",
        "queue_timeout",
        "preempted",
        "orphaned",
        "reset_while_running",
        "refused_submission",
        "fenced_and_replaced",
        "continued_first_run",
        "continued_last_run",
    },
    "cluster": {"deliveries", "silent_then_fenced", "continued_last_run", "brake_lifted"},
    "audit": {"quiet", "asks_twice"},
    "placement": {"rounds", "continued_first_run", "continued_last_run"},
}


def history_of(path: Path) -> WorkflowHistory:
    """Under the id it ran with: workflows read their names from it."""
    text = path.read_text()
    started = WorkflowHistory.from_json("unknown", text).events[0]
    attributes = started.workflow_execution_started_event_attributes
    return WorkflowHistory.from_json(attributes.workflow_id, text)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_a_recorded_history_replays(path: Path) -> None:
    replayer = Replayer(workflows=WORKFLOWS, plugins=[plugin(strict=True)])
    await replayer.replay_workflow(history_of(path))


@pytest.mark.parametrize("workflow", PATHS)
def test_every_path_has_been_recorded(workflow: str) -> None:
    recorded = {path.stem for path in RECORDED if path.parent.name == workflow}
    assert PATHS[workflow] - recorded == set()
