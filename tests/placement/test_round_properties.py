"""Rounds over random small worlds, against the slow oracle."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.constraint import Spread
from domain.fleet import PendingTask, Proposal
from placement.assign import UNPLACED, assign
from placement.dealing import Dealer, Tasks
from placement.demand import NO_RULE, Batch, Rule, shape_of, shapes_of
from placement.explain import explain
from placement.feasible import feasible
from placement.hands import NO_FIT, SCORE_STEPS, Hands, barred, chosen, one_pool
from placement.index import MachineId, MachineIndex
from placement.mix import Demand
from placement.policy import POLICIES
from placement.round import RoundResult, place
from placement.scarce import MANY_MACHINES
from placement.spreads import SpreadCounts
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


@settings(max_examples=200)
@given(worlds(), POLICY_NAMES, SEEDS)
def test_one_task_gets_the_best_of_all_machines(world: World, policy: str, seed: int) -> None:
    index, machines = index_of(world), oracle.machines_of(world.fleet)
    before: list[PendingTask] = []
    for task in oracle.in_order(world.pending):
        result = place(index, [task], POLICIES[policy], seed, cooling=world.cooling)
        everywhere = list(machines.values())
        best = oracle.best(
            everywhere, everywhere, task.spec, policy, world.cooling, task.shape, [*before, task]
        )
        names = [(one.row.cluster, one.row.name) for one in best]
        if not result.placed:
            assert not names
            continue
        [placed] = result.placed
        assert (placed.cluster, placed.machine) in names
        oracle.put(machines[placed.cluster, placed.machine], task.spec)
        before.append(task)


@given(worlds(), POLICY_NAMES, SEEDS, st.integers(1, 4))
def test_in_a_round_each_task_gets_the_best_of_its_own_hand(
    world: World, policy: str, seed: int, hand: int
) -> None:
    index, machines = index_of(world), oracle.machines_of(world.fleet)
    specs = {}
    for task in world.pending:
        shape = shape_of(task.spec, world.cooling.get(task.shape, frozenset()))
        if not task.spec.constraints.over_domains:  # The others are dealt no hands.
            specs[shape] = task
    batch = Batch.of(list(specs))
    for mix in (None, Demand().mix(batch)):
        spreads = SpreadCounts(index, batch)
        dealer = Dealer(index, batch, spreads, random.Random(seed), mix=mix)
        dealt = []
        for family in dealer.families(np.arange(len(batch)), in_turn=False):
            for tasks, hands in dealer.rounds(family, hand):
                dealt += tasks.tolist()
                check_hands(hands, machines, policy, world, [*specs.values()], tasks, family.over)
        assert len(dealt) == len(set(dealt))


def check_hands(
    hands: Hands,
    machines: dict[tuple[str, str], oracle.Machine],
    policy: str,
    world: World,
    pending: list[PendingTask],
    tasks: Tasks,
    over: Spread,
) -> None:
    index = hands.index
    bad = barred(hands)
    counts = None if over is Spread.NONE else SpreadCounts(index, hands.batch).table(hands, over)
    rows = chosen(bad.copy(), POLICIES[policy].score(hands, bad, counts))
    everywhere, mix = list(machines.values()), pending
    seen: set[int] = set()
    for column, (task, row) in enumerate(zip(tasks.tolist(), rows.tolist(), strict=True)):
        rows_of_hand = np.arange(hands.k, dtype=np.int32)
        slots = hands.slot(rows_of_hand, np.full(hands.k, column)).tolist()
        assert not seen & set(slots), "a machine in two hands"
        seen |= set(slots)
        hand = [machines[index.machine(slot)] for slot in slots]
        told = pending[task]
        best = oracle.best(everywhere, hand, told.spec, policy, world.cooling, told.shape, mix)
        assert (row == NO_FIT) == (not best)
        assert not best or hand[row] in best


@given(worlds(), POLICY_NAMES, SEEDS, st.integers(1, 4), st.sampled_from([1, MANY_MACHINES]))
def test_a_task_waits_only_when_no_machine_can_take_it(
    world: World, policy: str, seed: int, hand: int, many: int
) -> None:
    index, machines = index_of(world), oracle.machines_of(world.fleet)
    queue = oracle.in_order(world.pending)
    batch = Batch.of(shapes_of(queue, world.cooling))
    done = assign(index, batch, POLICIES[policy], seed, hand=hand, many=many)
    for task, slot in zip(queue, done.slot.tolist(), strict=True):
        if slot != UNPLACED:
            oracle.put(machines[index.machine(slot)], task.spec)
    for task, slot in zip(queue, done.slot.tolist(), strict=True):
        lost = oracle.lost(
            list(machines.values()), task.spec, world.cooling.get(task.shape, frozenset())
        )
        assert (lost is None) <= (slot != UNPLACED)
        if slot == UNPLACED:
            verdict = explain(
                index, shape_of(task.spec, world.cooling.get(task.shape, frozenset()))
            )
            assert verdict.lost == (lost or {})
            assert verdict.machines == len(machines)
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
    machines = oracle.machines_of(world.fleet)
    everywhere = list(machines.values())
    left: list[Proposal] = []
    for band in sorted({task.band for task in world.pending}):
        mine = [one for one in result.placed if specs[one.key].band == band]
        # Within a band the order is the engine's: rules between tasks hold in any order, but those
        # over domains, whose tasks come after the others, again and again while some still fit.
        for one in mine:
            task, machine = specs[one.key], machines[one.cluster, one.machine]
            if not task.spec.constraints.over_domains:
                cooling = world.cooling.get(task.shape, frozenset())
                assert oracle.first_reason(machine, task.spec, cooling, everywhere) is None
                oracle.put(machine, task.spec)
        left += [one for one in mine if specs[one.key].spec.constraints.over_domains]
        left = one_by_one(left, world, machines)
    assert not left


def one_by_one(
    left: list[Proposal], world: World, machines: dict[tuple[str, str], oracle.Machine]
) -> list[Proposal]:
    """Place those that may be where they were placed; those that may not are asked again."""
    specs, everywhere = {task.key: task for task in world.pending}, list(machines.values())
    before = None
    while before != len(left):
        before, waiting, failed = len(left), [], set[str]()
        for one in left:
            task, machine = specs[one.key], machines[one.cluster, one.machine]
            shape, cooling = task.team + task.shape, world.cooling.get(task.shape, frozenset())
            why = oracle.first_reason(machine, task.spec, cooling, everywhere)
            if shape in failed or why is not None:
                failed.add(shape)
                waiting.append(one)
            else:
                oracle.put(machine, task.spec)
        left = waiting
    return left


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
    index.demand = Demand()  # What has been asked for stays known, whoever takes it back.
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
    index.replace(world.fleet)
    assert place(index, pending, POLICIES[policy], seed, cooling=world.cooling) == result


@given(worlds(), POLICY_NAMES)
def test_scores_lie_between_0_and_1(world: World, policy: str) -> None:
    index = index_of(world)
    for task in world.pending if index.slots else ():
        shape = shape_of(task.spec)
        hands = one_pool(
            index,
            Batch.of([shape]),
            index.everywhere,
            0,
            codes=np.zeros(1, dtype=np.int32),
            shifts=np.array([index.rules.shift(index, NO_RULE)], dtype=np.int32),
        )
        bad = barred(hands)
        over = Spread.NONE if hands.batch.lonely else shape.constraints.spread
        counts = (
            None if over is Spread.NONE else SpreadCounts(index, hands.batch).table(hands, over)
        )
        scores = POLICIES[policy].score(hands, bad, counts)[bad >= 0] / SCORE_STEPS
        assert ((scores >= 0.0) & (scores <= 1.0 + oracle.NEARLY)).all()


@given(worlds())
def test_a_fleet_in_two_halves_keeps_the_rules_of_the_whole(world: World) -> None:
    whole, halves = index_of(world), (MachineIndex(), MachineIndex())
    for at, half in enumerate(halves):
        half.open_clusters(world.fleet.clusters)
        half.upsert(world.fleet.machines[at::2])
        half.beyond = halves[1 - at]
    for task in world.pending:
        shape = shape_of(task.spec)
        everywhere = feasible(whole, shape, whole.everywhere)
        for half in halves:
            mask = feasible(half, shape, half.everywhere)
            for slot in range(half.slots):
                at_whole = whole.slot(half.machine(slot))
                assert mask[slot] == everywhere[at_whole], (task, half.machine(slot))


@given(worlds())
def test_hands_are_barred_where_a_predicate_says_no(world: World) -> None:
    index = index_of(world)
    for task in world.pending:
        shape = shape_of(task.spec, world.cooling.get(task.shape, frozenset()))
        hands = one_pool(
            index,
            Batch.of([shape]),
            index.everywhere,
            0,
            codes=np.zeros(1, dtype=np.int32),
            shifts=np.array([index.rules.shift(index, Rule.of(shape))], dtype=np.int32),
        )
        everywhere = feasible(index, shape, index.everywhere)
        if not shape.constraints.over_domains:
            assert np.array_equal(barred(hands)[:, 0] >= 0, everywhere)
        some = np.arange(0, index.slots, 2)
        assert np.array_equal(feasible(index, shape, some), everywhere[some])
