"""Audits in the middle of faults: what is in flight is no difference, and what is one is ended.

The lists are those of the real agents, looked at a second after they were made.
"""

from functools import partial

import pytest

from agent.rolls import roll_answer
from domain.attempt import Ending, EndKind, Outcome, Phase
from domain.audit import Fault, RollAnswer, RollCall
from domain.claims import Finish, Settle
from domain.ids import split_attempt_id
from domain.reasons import Reason
from sim import rows
from sim.clock import SECOND
from sim.run import run_world, world_of
from sim.scheduler import PARTITIONS
from sim.world import World, new_ledger
from store.differences import begin_run, counts, end_run
from store.ledger import apply
from store.rolls import Comparison, agents_agree, compare
from store.session import reading, transaction

SEEDS = 2
SEARCHED = 20
EVERY_US = 23 * SECOND
TRAVEL_US = 1 * SECOND
AGAIN_US = 5 * SECOND
AT_US = 60 * SECOND
LASTS_US = 50 * SECOND


class Auditor:
    """Asks every agent that is up for all its machines, again and again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lists = 0
        world.clock.after(EVERY_US, self.begin)

    def begin(self) -> None:
        with transaction(self.world.engine) as connection:
            run = begin_run(connection, self.world.clock.instant)
        for name in self.world.agents:
            self.ask(run, name, again=False)
        self.world.clock.after(EVERY_US, self.begin)

    def ask(self, run: int, cluster: str, *, again: bool) -> None:
        agent = self.world.agents[cluster]
        if not agent.process.up:
            return
        machines = tuple(agent.state.machines)
        answer = roll_answer(agent.state, RollCall(cluster=cluster, machines=machines))
        self.lists += len(answer.rolls)
        after = self.world.clock.after
        after(TRAVEL_US, lambda: self.look(run, cluster, answer, again=again))
        if not again:
            after(AGAIN_US, lambda: self.ask(run, cluster, again=True))

    def look(self, run: int, cluster: str, answer: RollAnswer, *, again: bool) -> None:
        now = self.world.clock.instant
        with transaction(self.world.engine) as connection:
            done: Comparison = compare(connection, run, cluster, answer, now, again=again)
            if again:
                agents_agree(connection, run, now)
                end_run(connection, run, 0, 0, now)
        assert not done.stops, done.stops
        assert not done.unknown, done.unknown


def found(world: World) -> dict[Fault, int]:
    with reading(world.engine) as connection:
        return {fault: count.found for fault, count in counts(connection).items() if count.found}


def test_no_audit_takes_what_is_in_flight_for_an_attempt_without_a_claim():
    engine = new_ledger()
    lists = 0
    for seed in range(SEEDS):
        world = world_of(seed, engine)
        auditor = Auditor(world)
        result = run_world(seed, world)
        assert result.violation is None, f"seed {seed}: {result.violation}"
        assert Fault.RUNS_WITHOUT_CLAIM not in found(world), f"seed {seed}"
        lists += auditor.lists
    assert lists > 50


def test_an_attempt_whose_claim_was_released_while_it_ran_is_found_and_ended():
    """Somebody writes an end into the ledger that nobody has reported."""
    engine = new_ledger()
    for seed in range(SEARCHED):
        world = world_of(seed, engine)
        Auditor(world)
        planted: list[str] = []
        world.clock.after(AT_US, partial(_write_an_end, world, planted))
        result = run_world(seed, world)
        if planted:
            print(f"seed {seed}: {planted[0]}")
            assert result.violation is None, result.violation
            assert found(world).get(Fault.RUNS_WITHOUT_CLAIM) == 1
            assert planted[0] not in world.truth.exits  # It was stopped.
            return
    pytest.fail("no seed had an attempt that lasts")


def _write_an_end(world: World, planted: list[str]) -> None:
    with reading(world.engine) as connection:
        held = set(rows.held(connection))
    lasting = [
        tree.attempt
        for tree in world.truth.trees.values()
        if tree.attempt in held and tree.left_us > LASTS_US and not tree.frozen
    ]
    if not lasting:
        return
    planted.append(min(lasting))
    key, number = split_attempt_id(planted[0])
    world.gone.add(key)
    agents = world.agents.items()
    reason = Reason.WORKFLOW_GONE
    outcome = Outcome(phase=Phase.CANCELLED, reason=reason, number=number)
    settle = Settle(
        key=key,
        number=number,
        cluster=next(name for name, agent in agents if planted[0] in agent.state.live),
        ending=Ending(kind=EndKind.LOST, reason=reason),
        then=Finish(outcome=outcome),
        at=world.clock.instant,
    )
    with transaction(world.engine) as connection:
        apply(connection, [settle], partitions=PARTITIONS, now=world.clock.instant)
