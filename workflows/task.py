"""TaskWorkflow: drives domain.lifecycle for one task. Decides nothing about tasks itself."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from domain.attempt import Outcome
from domain.claims import LedgerAnswer, LedgerOperation
from domain.errors import ConflictError, InvalidError
from domain.ids import task_workflow_id
from domain.lifecycle import Event, RefusedError, begin, step
from domain.misfit import told
from domain.protocol import Cancel, ReRead, TaskMessage, read_task_envelope
from domain.stages import Done, TaskState
from domain.task import SubmitTask, TaskSpec, body_digest
from workflows.attributes import final_attributes
from workflows.entity import Entity, Inbox, carried_over
from workflows.options import LEDGER
from workflows.ports import LedgerPort
from workflows.story import task_story

DIGEST_MEMO = "digest"


TaskEntity = Entity[TaskState, TaskMessage | LedgerAnswer, LedgerOperation]


class CarriedTask(BaseModel, frozen=True):
    """What one run hands to the next."""

    state: TaskState
    inbox: tuple[TaskMessage, ...] = ()


@workflow.defn
class TaskWorkflow:
    """One task, from its submission to its outcome."""

    @workflow.init
    def __init__(self, _task: Any = None, carried: Any = None) -> None:
        """Handlers may run before `run`: the inbox is there from the first signal on."""
        self._carried = carried_over(CarriedTask, carried)
        kept = self._carried.inbox if self._carried is not None else ()
        misfits = self._carried.state.misfits if self._carried is not None else 0
        self._inbox: Inbox[TaskMessage] = Inbox(
            read_task_envelope, kept, misfits, when_dropped=ReRead()
        )
        workflow.register_random_seed_callback(self._reset)

    @workflow.run
    async def run(self, task: Any = None, _carried: Any = None) -> Outcome:
        """`task` is a submission's JSON. However the task ends, its workflow completes with that
        outcome; it fails only when the submission is refused."""
        entity = self._entity(
            self._carried.state if self._carried is not None else _first_state(task)
        )
        await self._drive(entity)
        if not isinstance(entity.state.stage, Done):
            state = entity.state.model_copy(update={"misfits": self._inbox.misfits})
            kept = CarriedTask(state=state, inbox=self._inbox.kept())
            workflow.continue_as_new(args=[None, kept])
        workflow.upsert_search_attributes(final_attributes(entity.state))
        return entity.state.stage.outcome

    @workflow.signal
    def report(self, envelope: Any = None) -> None:
        """A TaskEnvelope: reports of attempts, cancel, expire."""
        self._inbox.tell(envelope)

    @workflow.signal(dynamic=True)
    def unknown(self, _name: str, _args: Sequence[RawValue]) -> None:
        """A signal that nothing here sends: counted."""
        self._inbox.misfits += 1

    def _entity(self, state: TaskState) -> TaskEntity:
        return Entity(
            state, self._inbox, step=self._step, perform=_ask, ended=_ended, show=self._show
        )

    async def _drive(self, entity: TaskEntity) -> None:
        """Apart from this task, so that a cancellation from outside never cuts an effect short:
        it is one more message."""
        entity.state, effects = begin(entity.state, workflow.now())
        loop = asyncio.create_task(entity.drive(effects))
        while not loop.done():
            try:
                await asyncio.shield(loop)
            except asyncio.CancelledError:
                self._inbox.put(Cancel(by=workflow.cancellation_reason() or "Temporal"))
            except RefusedError:
                break
        try:
            loop.result()
        except RefusedError as refused:
            raise _refusal(refused.code, str(refused)) from None

    def _step(
        self, state: TaskState, what: TaskMessage | LedgerAnswer
    ) -> tuple[TaskState, tuple[LedgerOperation, ...]]:
        event = Event(what, at=workflow.now(), chance=workflow.random().random())
        return step(state, event)

    def _show(self, state: TaskState) -> None:
        workflow.set_current_details(task_story(state, self._inbox.misfits))

    def _reset(self, _seed: int) -> None:
        """A new seed means a reset: messages of the run before may be missing here."""
        self._inbox.put(ReRead())


async def _ask(operation: LedgerOperation) -> LedgerAnswer:
    return await workflow.execute_local_activity_method(LedgerPort.ledger, operation, **LEDGER)


def _ended(state: TaskState) -> bool:
    return isinstance(state.stage, Done)


def _first_state(task: Any) -> TaskState:
    spec = _read_submission(task)
    digest = body_digest(spec)
    if workflow.info().workflow_id != task_workflow_id(spec.key):
        raise _refusal(
            InvalidError.code,
            f"the workflow id of this task must be {task_workflow_id(spec.key)!r}",
        )
    stated = workflow.memo_value(DIGEST_MEMO, default=digest, type_hint=str)
    if stated != digest:
        raise _refusal(ConflictError.code, f"the memo says digest {stated!r}, the body {digest!r}")
    return TaskState(spec=spec, digest=digest)


def _read_submission(task: Any) -> TaskSpec:
    try:
        return SubmitTask.model_validate(task)
    except ValidationError as error:
        raise _refusal(InvalidError.code, told(error, {"": "the submission"})) from None


def _refusal(code: str, message: str) -> ApplicationError:
    return ApplicationError(message, type=code, non_retryable=True)
