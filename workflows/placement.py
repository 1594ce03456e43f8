"""PlacementWorkflow: one per partition of teams. Wakes rounds; knows no task and no machine."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from domain.ids import TaskKey
from domain.partition import GONE_KEYS_MAX, GoneTasks, PartitionState, PlaceRounds, RoundsDone
from workflows.entity import carried_over, rollover_due
from workflows.options import LEDGER, ROUNDS
from workflows.ports import PlacementPort

ID_PREFIX = "placement/"


@workflow.defn
class PlacementWorkflow:
    """The bell of one partition: rung, it asks for rounds; idle, it waits until a row is due."""

    @workflow.init
    def __init__(self, carried: Any = None) -> None:
        """Every run begins rung: rows are read again, whatever was lost."""
        self._state = carried_over(PartitionState, carried) or PartitionState()
        self._gone: list[TaskKey] = list(self._state.gone)
        self._rung = True
        self._due: datetime | None = None

    @workflow.run
    async def run(self, _carried: Any = None) -> None:
        """For ever, a run after the other."""
        partition = int(workflow.info().workflow_id.removeprefix(ID_PREFIX))
        while not rollover_due():
            await self._wait()
            if self._gone:
                await self._close_gone()
            if self._rung:
                self._rung = False
                self._done(await self._rounds(PlaceRounds(partition=partition)))
        workflow.continue_as_new(self._state.model_copy(update={"gone": tuple(self._gone)}))

    @workflow.signal
    def ring(self) -> None:
        """There may be work."""
        self._rung = True

    @workflow.signal
    def gone(self, key: Any = None) -> None:
        """This task has a row but no workflow."""
        if not isinstance(key, str) or len(self._gone) >= GONE_KEYS_MAX:
            self._misfit()
        elif key not in self._gone:
            self._gone.append(TaskKey(key))

    @workflow.signal(dynamic=True)
    def unknown(self, _name: str, _args: Sequence[RawValue]) -> None:
        """A signal that nothing here sends: counted."""
        self._misfit()

    async def _wait(self) -> None:
        """Until rung, or until a row is due."""
        if self._rung or self._gone:
            return
        try:
            await workflow.wait_condition(
                lambda: self._rung or bool(self._gone) or rollover_due(), timeout=self._until_due()
            )
        except TimeoutError:
            self._rung = True

    def _until_due(self) -> timedelta | None:
        return None if self._due is None else max(self._due - workflow.now(), timedelta(0))

    async def _rounds(self, ask: PlaceRounds) -> RoundsDone:
        return await workflow.execute_activity_method(PlacementPort.place_round, ask, **ROUNDS)

    async def _close_gone(self) -> None:
        keys, self._gone = tuple(self._gone), []
        gone = GoneTasks(keys=keys)
        await workflow.execute_local_activity_method(PlacementPort.close_gone, gone, **LEDGER)

    def _done(self, done: RoundsDone) -> None:
        self._due = done.next_due
        self._rung = self._rung or done.more
        self._state = self._state.model_copy(
            update={
                "rounds": self._state.rounds + done.rounds,
                "placed": self._state.placed + done.placed,
                "conflicts": self._state.conflicts + done.conflicts,
            }
        )
        self._show()

    def _misfit(self) -> None:
        self._state = self._state.model_copy(update={"misfits": self._state.misfits + 1})
        self._show()

    def _show(self) -> None:
        state = self._state
        text = f"Rounds {state.rounds} · placed {state.placed} · next due {self._due or 'never'}"
        text += f" · lost to others {state.conflicts}" if state.conflicts else ""
        unread = f"\n\nMessages that could not be read: {state.misfits}" if state.misfits else ""
        workflow.set_current_details(text + unread)
