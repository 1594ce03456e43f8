"""What other tasks lose to a task, against the measure's own definition, machine by machine."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from domain.constraint import Constraints, LabelTerm, Operator
from domain.resources import Resources
from placement.assign import UNPLACED, assign
from placement.demand import NO_RULE, Batch, Shape, shape_for
from placement.devices import WHOLE_MILLI
from placement.gradient import keeping
from placement.hands import barred, one_pool
from placement.index import MachineIndex
from placement.mix import Demand
from placement.worth import CELLS_MAX, NEXT_TASKS, Worth
from tests.support.scenario import read

Devices = Sequence[int]


def worth(typical: Sequence[Shape], cpu: int, memory: int, free: Devices) -> float:
    """Idle thousandths, each device's times the chance that one of the next tasks can use it."""
    total = 0.0
    for milli in free:
        can = [shape for shape in typical if can_use(shape, cpu, memory, free, milli)]
        total += milli * (1 - (1 - len(can) / len(typical)) ** NEXT_TASKS)
    return total


def can_use(shape: Shape, cpu: int, memory: int, free: Devices, milli: int) -> bool:
    asked = shape.resources
    if asked.cpu_milli > cpu or asked.memory_mib > memory:
        return False
    if shape.gpu_milli:
        return shape.gpu_milli <= milli
    return milli == WHOLE_MILLI and asked.gpu <= free.count(WHOLE_MILLI)


def a_shape(rng: random.Random) -> Shape:
    milli = rng.choice([0, 0, 200, 500, 800])
    gpu = 0 if milli else rng.choice([0, 1, 2])
    resources = Resources(cpu_milli=rng.randint(1, 4) * 1_000, memory_mib=1_024, gpu=gpu)
    return shape_for(resources, gpu_milli=milli)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_lost_is_what_other_tasks_could_have_used(seed: int) -> None:
    rng = random.Random(seed)
    rows = read("\n".join(f"machine m{n} cpu={rng.randint(1, 8)} gpu=4" for n in range(12)))
    machines = [
        replace(row, gpu_free_milli=tuple(rng.choice([0, 300, 500, 900, 1_000]) for _ in range(4)))
        for row in rows.fleet.machines
    ]
    index = MachineIndex(machines)
    batch = Batch.of([a_shape(rng) for _ in range(10)])
    typical = [shape for shape in batch.shapes if shape.gpu_total_milli]
    shift = np.array([index.rules.shift(index, NO_RULE)], dtype=np.int32)
    for code, shape in enumerate(batch.shapes):
        codes = np.array([code], dtype=np.int32)
        hands = one_pool(index, batch, index.everywhere, 0, codes=codes, shifts=shift)
        lost, device = keeping(hands, Demand().mix(batch))
        for slot in np.flatnonzero(barred(hands)[:, 0] >= 0).tolist():
            cpu, memory = index.free[:2, slot].tolist()
            free = index.room.devices.free[:, slot].tolist()
            now = worth(typical, cpu, memory, free)
            cpu, memory = cpu - shape.resources.cpu_milli, memory - shape.resources.memory_mib
            options = [
                now - worth(typical, cpu, memory, after) for after in afterwards(shape, free)
            ]
            assert lost[slot, 0] == pytest.approx(min(options), abs=1.0), (seed, slot)
            if shape.gpu_milli:
                assert free[device[slot, 0]] >= shape.gpu_milli


def afterwards(shape: Shape, free: list[int]) -> list[list[int]]:
    """What may be free of the devices when the task has its own."""
    if shape.gpu_milli:
        return [
            [milli - shape.gpu_milli if at == one else milli for at, milli in enumerate(free)]
            for one, there in enumerate(free)
            if there >= shape.gpu_milli
        ]
    left = list(free)
    for _ in range(shape.resources.gpu):
        left[left.index(WHOLE_MILLI)] = 0
    return [left]


def test_more_rules_than_the_index_keeps_at_a_time_hold_for_every_task() -> None:
    kinds = 40
    rows = read("\n".join(f"machine m{n} cpu=64 gpu=8" for n in range(5 * kinds)))
    index = MachineIndex(
        replace(row, labels={"kind": str(n % kinds)}) for n, row in enumerate(rows.fleet.machines)
    )
    wanted = [tuple(str((kind + n) % kinds) for n in range(20)) for kind in range(kinds)]
    shapes = [
        shape_for(
            Resources(cpu_milli=1_000, memory_mib=1, gpu=1),
            Constraints(labels=(LabelTerm(key="kind", operator=Operator.IN, values=values),)),
        )
        for values in wanted
    ]
    done = assign(index, Batch.of(shapes * 3), seed=1)
    for values, slot in zip(wanted * 3, done.slot.tolist(), strict=True):
        assert slot != UNPLACED
        number = int(index.machine(slot).name.removeprefix("m"))
        assert str(number % kinds) in values


# --- the demand that is remembered ---


def shapes_of(rng: random.Random, tasks: int) -> list[Shape]:
    distinct = [a_shape(rng) for _ in range(12)]
    return rng.choices(distinct, weights=[2**n for n in range(12)], k=tasks)


def test_tasks_one_by_one_are_remembered_as_if_they_had_come_together() -> None:
    stream = shapes_of(random.Random(3), 400)
    piecemeal = Demand()
    for shape in stream:
        piecemeal.learn(Batch.of([shape]), np.ones(1, dtype=np.bool_))
    together, nothing = Batch.of(stream), Batch.of([])
    whole = Demand()
    whole.learn(together, np.ones(400, dtype=np.bool_))
    one, other = piecemeal.mix(nothing), whole.mix(nothing)
    found = [
        sorted(zip(mix.typical.cpu.tolist(), mix.typical.weight.tolist(), strict=True))
        for mix in (one, other)
    ]
    assert found[0] == found[1]


def test_who_waits_counts_only_while_it_is_in_the_batch() -> None:
    placed, waits = (
        shape_for(Resources(cpu_milli=1, gpu=1)),
        shape_for(Resources(cpu_milli=2, gpu=2)),
    )
    batch, demand = Batch.of([placed, waits]), Demand()
    assert demand.mix(batch).typical.cpu.tolist() == [1, 2]
    for _ in range(50):
        demand.learn(batch, np.array([False, False]))
    demand.learn(batch, np.array([True, False]))
    assert demand.mix(Batch.of([placed])).typical.cpu.tolist() == [1]


def test_what_is_remembered_is_bounded_and_yields_to_what_comes_now() -> None:
    demand = Demand()
    old, new = (
        [shape_for(Resources(cpu_milli=first + n, gpu=1)) for n in range(2_000)]
        for first in (1, 100_001)
    )
    everybody = np.ones(20_000, dtype=np.bool_)
    for shapes in (old, new):
        for _ in range(3):
            demand.learn(Batch.of(shapes * 10), everybody)
    few = np.ones(15_000, dtype=np.bool_)
    commonest = shape_for(Resources(cpu_milli=7, gpu=1))
    for _ in range(4):
        demand.learn(Batch.of([commonest] * 15_000), few)
    mix = demand.mix(Batch.of([]))
    assert 0 < len(mix.typical.cpu) <= 128
    assert mix.typical.cpu[0] == 7
    assert not (mix.typical.cpu == 1).any()


def test_a_mix_knows_the_rules_on_several_fleets_and_when_machines_change() -> None:
    one, other = (
        MachineIndex(
            replace(row, labels={"kind": kind}) for row in read("machine m1 gpu=1").fleet.machines
        )
        for kind in "ab"
    )
    rules = Constraints(labels=(LabelTerm(key="kind", operator=Operator.IN, values=("a",)),))
    mix = Demand().mix(Batch.of([shape_for(Resources(cpu_milli=1, gpu=1), rules)]))
    third = MachineIndex(read("machine m1 gpu=1").fleet.machines)

    def is_worth_something(index: MachineIndex) -> bool:
        slots, much = np.zeros(1, dtype=np.intp), np.full(1, 10**6, dtype=np.int32)
        worth = mix.worth(index)
        return bool(worth.of_unused(worth.at(slots, much, much), np.ones(1, dtype=np.int32))[0])

    for _ in range(2):
        found = [is_worth_something(index) for index in (one, other, third)]
        assert found == [True, False, False]
    other.upsert(
        replace(row, labels={"kind": "a"}) for row in read("machine m1 gpu=1").fleet.machines
    )
    assert is_worth_something(other)


def test_a_table_that_would_be_too_large_leaves_out_the_less_common() -> None:
    many = [shape_for(Resources(cpu_milli=n, memory_mib=n), gpu_milli=n) for n in range(1, 200)]
    suits, kind = np.eye(128, dtype=np.bool_), np.arange(128)
    worth = Worth.of(Demand().mix(Batch.of([*many, many[0]])).typical, kind, suits)
    assert len(worth.cells) <= CELLS_MAX
    assert worth.cpu[0] == 1


def test_what_is_remembered_outlives_a_new_layout_of_the_index() -> None:
    fleet = read("machine m1 gpu=2\nmachine m2 gpu=2").fleet
    index = MachineIndex(fleet.machines)
    assign(index, Batch.of([shape_for(Resources(cpu_milli=1, memory_mib=1, gpu=1))]))
    index.remove([index.machine(0)])
    index.replace(fleet)
    assert index.demand.mix(Batch.of([])).typical.cpu.tolist() == [1]
