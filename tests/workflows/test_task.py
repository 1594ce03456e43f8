"""TaskWorkflow: wiring only. What a task decides is tested in tests/domain."""

from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from domain.attempt import Outcome, Phase, StopCause
from domain.claims import (
    Enqueue,
    Enqueued,
    LiveAttempt,
    Settle,
    SubmitRefusal,
    Withdraw,
    WithdrawAnswer,
    WithdrawCause,
    Withdrawn,
)
from domain.protocol import Cancel, Expire
from domain.reasons import Reason
from tests.workflows.conftest import Stage, TaskHandle
from tests.workflows.fakes import eventually
from tests.workflows.reports import ended, fenced, placed, refused, stopped
from workflows.task import TaskWorkflow

LIVE = LiveAttempt(number=1, cluster="north", machine="m1", admitted=True)
STOPPING = Withdrawn(answer=WithdrawAnswer.STOPPING, live=LIVE)
CANCELLED = Outcome(phase=Phase.CANCELLED, reason=Reason.CANCELLED_BY_USER)


async def details(handle: TaskHandle) -> str:
    """What the Web UI shows."""
    shown = await handle.query("__temporal_workflow_metadata")
    return str(shown.get("currentDetails", "")) if isinstance(shown, dict) else str(shown)


async def test_a_report_is_settled_and_ends_the_task(skipping: Stage) -> None:
    async with skipping.worker():
        handle = await skipping.submit()
        await skipping.asked(1)
        await skipping.report(handle, ended(1, 0))
        outcome = await handle.result()
    assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=1)
    assert skipping.ledger.took(Enqueue).spec.key == handle.id.removeprefix("task/")
    assert skipping.ledger.took(Settle).number == 1
    skipping.ledger.nothing_left()


async def test_a_failed_task_completes_its_workflow_with_that_outcome(skipping: Stage) -> None:
    async with skipping.worker():
        handle = await skipping.submit()
        await skipping.report(handle, ended(1, 3))
        outcome = await handle.result()
        described = await handle.describe()
    assert (outcome.phase, outcome.exit_code) == (Phase.FAILED, 3)
    assert described.status is WorkflowExecutionStatus.COMPLETED


async def test_search_attributes_are_written_once_at_the_end(skipping: Stage) -> None:
    async with skipping.worker():
        handle = await skipping.submit(team="red", priority="HIGH")
        await skipping.report(handle, ended(1, 0))
        await handle.result()
        found = {
            pair.key.name: pair.value for pair in (await handle.describe()).typed_search_attributes
        }
    assert found["DrystonePhase"] == "SUCCEEDED"
    assert found["DrystoneCluster"] == "north"
    assert found["DrystoneTeam"] == "red"
    assert found["DrystonePriority"] == "HIGH"


async def test_a_ledger_that_is_down_is_waited_for(skipping: Stage) -> None:
    skipping.ledger.down = True
    async with skipping.worker():
        handle = await skipping.submit()
        await eventually(lambda: skipping.ledger.refused >= 3, "three questions in vain")
        await skipping.report(handle, ended(1, 0))
        skipping.ledger.down = False
        outcome = await handle.result()
    assert outcome.phase is Phase.SUCCEEDED


@pytest.mark.parametrize("state", ["pending", "offered", "running"])
async def test_temporals_cancel_equals_ours(quick: Stage, state: str) -> None:
    async with quick.worker():
        if state != "pending":
            live = LIVE.model_copy(update={"admitted": state == "running"})
            quick.ledger.will_answer(Enqueue, Enqueued(closed=0, live=live))
            quick.ledger.will_answer(Withdraw, STOPPING)
        handle = await quick.submit()
        await quick.asked(1)
        await handle.cancel()
        await quick.asked(2)
        if state != "pending":
            await quick.report(handle, stopped(1))
        outcome = await handle.result()
        described = await handle.describe()
    assert outcome.phase is Phase.CANCELLED
    assert outcome.reason is Reason.CANCELLED_BY_USER
    assert described.status is WorkflowExecutionStatus.COMPLETED


async def test_temporals_cancel_while_stopping_changes_nothing(quick: Stage) -> None:
    async with quick.worker():
        live = LIVE.model_copy(update={"stop_cause": StopCause.CANCEL})
        quick.ledger.will_answer(Enqueue, Enqueued(closed=0, live=live))
        handle = await quick.submit()
        await quick.asked(1)
        await quick.report(handle, Cancel())
        await handle.cancel()
        await quick.report(handle, stopped(1))
        outcome = await handle.result()
    assert outcome.phase is Phase.CANCELLED
    quick.ledger.took(Enqueue)
    quick.ledger.took(Settle)
    quick.ledger.nothing_left()


async def test_temporals_cancel_never_cuts_a_question_to_the_ledger_short(real: Stage) -> None:
    """It is down while the cancellation comes: the enqueue is asked again, then withdrawn."""
    real.ledger.down = True
    async with real.worker():
        handle = await real.submit()
        await eventually(lambda: real.ledger.refused >= 2, "questions in vain")
        await handle.cancel()
        real.ledger.down = False
        outcome = await handle.result()
    assert outcome.phase is Phase.CANCELLED
    real.ledger.took(Enqueue)
    assert real.ledger.took(Withdraw).cause is WithdrawCause.CANCEL
    real.ledger.nothing_left()


async def test_cancel_at_once_after_the_start(real: Stage) -> None:
    handle = await real.submit()
    await handle.cancel()
    async with real.worker():
        outcome = await handle.result()
    assert outcome.phase is Phase.CANCELLED


async def test_an_expired_task_ends(skipping: Stage) -> None:
    async with skipping.worker():
        handle = await skipping.submit(queue_timeout_s=5)
        await skipping.asked(1)
        await skipping.report(handle, Expire())
        outcome = await handle.result()
    assert outcome.phase is Phase.EXPIRED


async def test_a_fenced_attempt_is_settled_and_the_task_waits_again(skipping: Stage) -> None:
    async with skipping.worker():
        handle = await skipping.submit()
        await skipping.report(handle, fenced(1))
        await skipping.report(handle, ended(2, 0))
        outcome = await handle.result()
    assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=2)


async def test_what_a_final_row_says_is_the_outcome(skipping: Stage) -> None:
    final = Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=4)
    skipping.ledger.will_answer(Enqueue, Enqueued(closed=4, final=final))
    async with skipping.worker():
        outcome = await (await skipping.submit()).result()
    assert outcome == final


# --- a start by any client ----------------------------------------------------------------------


async def refusal(stage: Stage, arguments: list[Any], **start: Any) -> ApplicationError:
    """How a workflow ends that was started with these arguments."""
    async with stage.worker():
        handle = await stage.client.start_workflow(
            "TaskWorkflow", args=arguments, task_queue=stage.queue, **start
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.non_retryable
    return cause


TASK = {"team": "blue", "id": "direct", "command": ["/bin/true"]}
# Each of these workflows has ended when the next one is started under the same id.


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], "submission"),
        (["text"], "submission"),
        ([[1, 2]], "submission"),
        ([{**TASK, "comand": ["x"]}], "comand"),
        ([{**TASK, "command": []}], "command"),
        ([{**TASK, "command": "true"}], 'command: must be a list, not "true"'),
        ([{**TASK, "resources": {"cpu": "-1"}}], "resources"),
        ([{**TASK, "resources": {"memory": float("nan")}}], "memory"),
        ([{**TASK, "id": "a/b"}], "id"),
        ([{**TASK, "id": "x" * 1_000}], "id"),
        ([{**TASK, "priority": "URGENT"}], "priority"),
    ],
)
async def test_a_direct_start_with_bad_input_fails_with_a_typed_error(
    quick: Stage, given: list[Any], named: str
) -> None:
    error = await refusal(quick, given, id="task/blue/direct")
    assert error.type == "invalid"
    assert named in str(error)


async def test_a_direct_start_under_another_id_fails(quick: Stage) -> None:
    error = await refusal(quick, [TASK], id="my-own-id")
    assert error.type == "invalid"
    assert "task/blue/direct" in str(error)


async def test_a_digest_in_the_memo_that_is_not_the_bodys_fails(quick: Stage) -> None:
    error = await refusal(quick, [TASK], id="task/blue/direct", memo={"digest": "0" * 32})
    assert error.type == "conflict"


async def test_a_state_smuggled_in_by_a_starter_is_ignored(quick: Stage) -> None:
    error = await refusal(quick, [{"id": "no command"}, {"state": {}}], id="task/blue/direct")
    assert error.type == "invalid"


async def test_what_the_ledger_refuses_fails_with_its_code(quick: Stage) -> None:
    refused = SubmitRefusal(code="never_fits", message="largest cpu_milli 8000 < 12000")
    quick.ledger.will_answer(Enqueue, Enqueued(closed=0, refusal=refused))
    error = await refusal(quick, [TASK], id="task/blue/direct")
    assert error.type == "never_fits"
    assert "12000" in str(error)


# --- messages that do not fit -------------------------------------------------------------------


async def test_a_message_that_does_not_fit_is_counted_and_shown(quick: Stage) -> None:
    async with quick.worker():
        handle = await quick.submit()
        await handle.signal("report", {"v": 99, "message": {"kind": "cancel"}})
        await handle.signal("report", "what")
        await handle.signal("report")
        await handle.signal("no_such_signal", 1)
        await quick.report(handle, placed(1))
        await quick.report(handle, ended(1, 1))
        outcome = await handle.result()
        shown = await details(handle)
    assert outcome.phase is Phase.FAILED
    assert "could not be read: 4" in shown


async def test_the_story_names_every_attempt(quick: Stage) -> None:
    async with quick.worker():
        handle = await quick.submit(retries={"failures": 1})
        await quick.report(handle, refused(1))
        await quick.report(handle, ended(2, 7))
        await quick.report(handle, ended(1, 0))
        await quick.report(handle, ended(3, 0))
        await handle.result()
        shown = await details(handle)
    assert "SUCCEEDED" in shown
    assert "refused agent_no_room" in shown
    assert "exited 7 nonzero_exit" in shown
    assert "Late reports of closed attempts: 1" in shown


async def test_a_long_history_goes_on_in_a_new_run(rolling: Stage) -> None:
    """Nothing of state or inbox is lost on the way."""
    async with rolling.worker():
        handle = await rolling.submit(retries={"failures": 1})
        await rolling.report(handle, ended(1, 1))
        for number in range(60):
            await handle.signal(TaskWorkflow.report, {"v": 1, "n": number})
        await rolling.report(handle, ended(2, 0))
        outcome = await handle.result()
        shown = await details(handle)
        first = rolling.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        described = await first.describe()
    assert outcome == Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=2)
    assert "could not be read: 60" in shown
    assert described.status is WorkflowExecutionStatus.CONTINUED_AS_NEW
