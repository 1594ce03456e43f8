"""Rounds over random small worlds, against the slow oracle."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.demand import shape_of
from placement.feasible import feasible
from placement.index import MachineId, MachineIndex
from placement.policy import POLICIES
from placement.round import RoundResult, place
from placement.score import spread
from tests.placement import oracle
from tests.placement.worlds import World, worlds

POLICY_NAMES = st.sampled_from(sorted(POLICIES))
SEEDS = st.integers(0, 2**32 - 1)


def index_of(world: World) -> MachineIndex:
    index = MachineIndex()
    index.replace(world.fleet)
    return index


def run(world: World, policy: str, seed: int) -> RoundResult:
    return place(index_of(world), world.pending, POLICIES[policy], seed, cooling=world.cooling)


@settings(max_examples=1_000)
@given(worlds(), POLICY_NAMES, SEEDS)
def test_a_round_equals_the_plain_meaning(world: World, policy: str, seed: int) -> None:
    result = run(world, policy, seed)
    told = oracle.run(world.fleet, list(world.pending), policy, seed, world.cooling)
    assert [(one.key, one.cluster, one.machine) for one in result.placed] == told.placed
    assert result.verdicts.keys() == told.lost.keys()
    for key, verdict in result.verdicts.items():
        assert verdict.lost == told.lost[key]
        assert verdict.machines == len(world.fleet.machines)
        assert verdict.detail


@given(worlds(), POLICY_NAMES, SEEDS)
def test_every_task_is_either_placed_or_told_why_it_waits(
    world: World, policy: str, seed: int
) -> None:
    result = run(world, policy, seed)
    placed = [one.key for one in result.placed]
    assert len(placed) == len(set(placed))
    assert {*placed, *result.verdicts} == {task.key for task in world.pending}
    assert len(placed) + len(result.verdicts) == len(world.pending)


@given(worlds(), POLICY_NAMES, SEEDS)
def test_no_assignment_breaks_a_rule_or_takes_more_than_there_is(
    world: World, policy: str, seed: int
) -> None:
    result = run(world, policy, seed)
    specs = {task.key: task for task in world.pending}
    machines = {(m.row.cluster, m.row.name): m for m in oracle.machines_of(world.fleet, seed)}
    for one in result.placed:
        task, machine = specs[one.key], machines[one.cluster, one.machine]
        cooling = world.cooling.get(task.shape, frozenset())
        assert oracle.first_reason(machine, task.spec, cooling) is None
        oracle.put(machine, task.spec)


@given(worlds(), POLICY_NAMES, SEEDS)
def test_releasing_what_a_round_took_leaves_the_index_as_it_was(
    world: World, policy: str, seed: int
) -> None:
    index, untouched = index_of(world), index_of(world)
    specs = {task.key: task.spec for task in world.pending}
    result = place(index, world.pending, POLICIES[policy], seed, cooling=world.cooling)
    for one in result.placed:
        index.release(MachineId(one.cluster, one.machine), specs[one.key])
    assert np.array_equal(index.free, untouched.free)
    again = place(index, world.pending, POLICIES[policy], seed, cooling=world.cooling)
    assert again == result


@given(worlds(), POLICY_NAMES, SEEDS)
def test_the_ledger_s_next_rows_equal_what_the_round_took(
    world: World, policy: str, seed: int
) -> None:
    index = index_of(world)
    before = index.free.copy()
    specs = {task.key: task.spec for task in world.pending}
    result = place(index, world.pending, POLICIES[policy], seed, cooling=world.cooling)
    other = index_of(world)
    for one in result.placed:
        other.claim(MachineId(one.cluster, one.machine), specs[one.key])
    assert np.array_equal(index.free, other.free)
    index.refresh(world.fleet)
    assert np.array_equal(index.free, before)


@given(worlds(), POLICY_NAMES, SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_machines_and_tasks_decides_nothing(
    world: World, policy: str, seed: int, chance: random.Random
) -> None:
    result = run(world, policy, seed)
    machines, pending = list(world.fleet.machines), list(world.pending)
    chance.shuffle(machines)
    chance.shuffle(pending)
    index = MachineIndex(machines[: len(machines) // 2])
    # Slots that were used before, in another order, decide nothing either.
    index.remove([MachineId(one.cluster, one.name) for one in machines[:1]])
    index.upsert(machines)
    index.refresh(world.fleet)
    assert place(index, pending, POLICIES[policy], seed, cooling=world.cooling) == result


@given(worlds())
def test_scores_lie_between_0_and_1(world: World) -> None:
    index = index_of(world)
    for task in world.pending:
        shape = shape_of(task.spec)
        fits = feasible(index, shape, index.everywhere)
        scores = [
            weighted.scorer(index, shape, index.everywhere)
            for policy in POLICIES.values()
            for weighted in policy.scorers
        ]
        if task.spec.constraints.spread.value != "none":
            scores.append(spread(index, shape, index.everywhere, fits))
        assert all(((score >= 0.0) & (score <= 1.0)).all() for score in scores)


@given(worlds())
def test_some_machines_asked_answer_as_all_of_them_do(world: World) -> None:
    index = index_of(world)
    some = np.arange(0, index.slots, 2)
    for task in world.pending:
        shape = shape_of(task.spec)
        everywhere = feasible(index, shape, index.everywhere)
        assert np.array_equal(feasible(index, shape, some), everywhere[some])
        for policy in POLICIES.values():
            for weighted in policy.scorers:
                scores = weighted.scorer(index, shape, index.everywhere)
                assert np.array_equal(weighted.scorer(index, shape, some), scores[some])
