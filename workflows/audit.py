"""AuditWorkflow: one audit, started by a schedule. Asks ledger and agents; decides nothing itself.

The ledger is swept in pages; agents whose digests do not fit are asked for their lists, twice and
some time apart, so that what is in flight is not taken for a difference.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain.audit import (
    AuditAnswer,
    AuditOperation,
    Compare,
    Compared,
    Conclude,
    Concluded,
    RollAnswer,
    RollCall,
    Sweep,
    Swept,
)
from domain.protocol import ORDERS_PER_DELIVERY_MAX, Delivery
from workflows.entity import carried_over, rollover_due
from workflows.options import AUDIT, to_agent
from workflows.ports import AgentPort, AuditPort

CLUSTERS_AT_ONCE = 8
SWEEPS_MAX = 10_000
"""Of one audit; each takes some seconds of a very large ledger."""


class AuditState(BaseModel, frozen=True):
    """How far an audit has come: what one run hands to the next."""

    run: int = 0
    look_again_s: float = 5
    waiting: tuple[RollCall, ...] = ()
    again: tuple[RollCall, ...] = ()
    """To be asked a second time."""
    second: bool = False
    asked: int = 0
    unheard: int = 0


@workflow.defn
class AuditWorkflow:
    """Claims, quota and what agents report, held against each other once."""

    def __init__(self) -> None:
        self._state = AuditState()

    @workflow.run
    async def run(self, carried: Any = None) -> Concluded:
        """What was found, healed, and still stands."""
        self._state = carried_over(AuditState, carried) or AuditState()
        if self._state.run == 0:
            await self._sweep()
        await self._ask()
        if self._state.again and not self._state.second:
            await asyncio.sleep(self._state.look_again_s)
            self._change(waiting=self._state.again, again=(), second=True)
            await self._ask()
        state = self._state
        conclude = Conclude(
            run=state.run, machines_asked=state.asked, clusters_unheard=state.unheard
        )
        concluded = await self._ledger(conclude)
        assert isinstance(concluded, Concluded)
        return concluded

    async def _sweep(self) -> None:
        sweep = Sweep()
        for _ in range(SWEEPS_MAX):
            swept = await self._ledger(sweep)
            assert isinstance(swept, Swept)
            if swept.part is None:
                self._change(run=swept.run, waiting=swept.calls, look_again_s=swept.look_again_s)
                return
            sweep = Sweep(run=swept.run, part=swept.part, after=swept.after)
        raise AssertionError("a sweep without an end")

    async def _ask(self) -> None:
        """Each agent on the list, several at once; a long history goes on in a new run."""
        while self._state.waiting:
            if rollover_due():
                workflow.continue_as_new(self._state)
            now, later = _first(self._state.waiting)
            again = await asyncio.gather(*(self._compare(call) for call in now))
            more = tuple(call for call in again if call is not None)
            self._change(waiting=later, again=(*self._state.again, *more))

    async def _compare(self, call: RollCall) -> RollCall | None:
        """One cluster; whom to ask again."""
        options = to_agent(call.cluster)
        try:
            answer = await workflow.execute_activity_method(AgentPort.roll_call, call, **options)
        except ActivityError:
            self._change(unheard=self._state.unheard + (not self._state.second))
            return None
        if not self._state.second:
            self._change(asked=self._state.asked + len(answer.rolls))
        compared = await self._ledger(_comparison(self._state, call, answer))
        assert isinstance(compared, Compared)
        if compared.stops:
            await self._stop(call.cluster, answer.epoch, compared)
        again = RollCall(cluster=call.cluster, machines=compared.machines)
        return again if compared.machines else None

    async def _stop(self, cluster: str, epoch: int, compared: Compared) -> None:
        """Orders that no claim can carry. What is not delivered is found by the next audit."""
        orders = compared.stops[:ORDERS_PER_DELIVERY_MAX]
        delivery = Delivery(cluster=cluster, epoch=epoch, orders=orders)
        options = to_agent(cluster)
        try:
            await workflow.execute_activity_method(AgentPort.deliver, delivery, **options)
        except ActivityError:
            workflow.logger.warning("stop orders not delivered")

    async def _ledger(self, operation: AuditOperation) -> AuditAnswer:
        return await workflow.execute_activity_method(AuditPort.audit_ledger, operation, **AUDIT)

    def _change(self, **changes: object) -> None:
        self._state = self._state.model_copy(update=changes)


def _comparison(state: AuditState, call: RollCall, answer: RollAnswer) -> Compare:
    return Compare(run=state.run, cluster=call.cluster, answer=answer, again=state.second)


def _first(calls: Sequence[RollCall]) -> tuple[tuple[RollCall, ...], tuple[RollCall, ...]]:
    return tuple(calls[:CLUSTERS_AT_ONCE]), tuple(calls[CLUSTERS_AT_ONCE:])
