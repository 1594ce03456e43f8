"""Faults planted in the system's own decisions: a simulation must see each of them."""

from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import datetime
from typing import Any

from agent.table import Table
from domain.attempt import EndKind, Outcome, Phase
from domain.claims import Finish, Settle, Settled
from keeper.attempts import Freeze
from sim.world import World

Plant = Callable[[World], None]


def an_agent_ignores_its_tombstones(world: World) -> None:
    """It forgets every stop that came before its offer."""
    for agent in world.agents.values():
        decide = agent.decide

        def forgetful(state: Any, event: Any, decide: Any = decide) -> Any:
            kept = [(k, r) for k, r in state.ended.items() if r.ending.kind is not EndKind.STOPPED]
            return decide(replace(state, tombstones=Table(), ended=Table(kept)), event)

        agent.decide = forgetful


def a_keeper_never_freezes(world: World) -> None:
    """Its lease passes, and its attempts go on; its warden sleeps as well."""
    for keeper in world.keepers:
        decide = keeper.decide

        def restless(state: Any, event: Any, instant: Any, decide: Any = decide) -> Any:
            state, effects = decide(state, event, instant)
            return state, tuple(e for e in effects if not isinstance(e, Freeze))

        keeper.decide = restless
        keeper.guards = False


def a_scheduler_does_not_wait_for_the_deadline(world: World) -> None:
    """It counts a quarter of the lease that agents and keepers were promised."""
    terms = world.scheduler.terms
    world.scheduler.terms = terms.model_copy(update={"lease_s": terms.lease_s / 4, "margin_s": 0})


def a_ledger_releases_fenced_claims(world: World) -> None:
    """The room of a fenced number is given away, and its agent is never told to end it."""
    _amend(world, _as_lost)


def a_settle_ignores_the_fence(world: World) -> None:
    """The success of a closed number ends the task."""
    step = world.task_kind.step

    def trusting(state: Any, message: Any, at: datetime, chance: float) -> Any:
        if isinstance(message, Settled) and state.stage.settle.ending.success:
            settle = state.stage.settle
            outcome = Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=settle.number)
            settle = settle.model_copy(update={"late": False, "then": Finish(outcome=outcome)})
            stage = state.stage.model_copy(update={"settle": settle})
            state = state.model_copy(update={"stage": stage})
            message = message.model_copy(update={"mine": True})
        return step(state, message, at, chance)

    world.task_kind.step = trusting  # type: ignore[method-assign]


def a_bell_that_nobody_hears(world: World) -> None:
    """Partitions are never rung."""
    world.scheduler.ring = lambda _: None


def _as_lost(settle: Settle) -> Settle:
    if settle.ending.kind is not EndKind.FENCED:
        return settle
    return settle.model_copy(
        update={"ending": settle.ending.model_copy(update={"kind": EndKind.LOST})}
    )


def _amend(world: World, change: Callable[[Settle], Settle]) -> None:
    ask = world.scheduler.ledger

    def amended(operation: Any) -> Generator[None, None, Any]:
        return ask(change(operation) if isinstance(operation, Settle) else operation)

    world.scheduler.ledger = amended  # type: ignore[method-assign]
