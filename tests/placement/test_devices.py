"""GPUs as devices: whole ones and shares, and what comes back where."""

from dataclasses import replace

import numpy as np
import pytest

from domain.constraint import Constraints, LabelTerm, Operator
from domain.resources import Resources
from placement.assign import UNPLACED, assign
from placement.demand import GPU_MODEL_LABEL, Batch, Shape, shape_for
from placement.devices import DEVICES_MAX, named
from placement.explain import explain
from placement.index import MachineId, MachineIndex
from tests.support.scenario import read


def of_one_machine(free_milli: tuple[int, ...]) -> MachineIndex:
    machine = read(f"machine m1 cpu=64 memory=64Gi gpu={len(free_milli)}").fleet.machines[0]
    return MachineIndex([replace(machine, gpu_free_milli=free_milli)])


def gpus(count: int = 0, milli: int = 0) -> Shape:
    return shape_for(Resources(cpu_milli=10, memory_mib=10, gpu=count), gpu_milli=milli)


def devices(index: MachineIndex, *shapes: Shape) -> list[tuple[int, ...] | None]:
    done = assign(index, Batch.of(shapes))
    return [
        None if slot == UNPLACED else named(bits)
        for slot, bits in zip(done.slot.tolist(), done.devices.tolist(), strict=True)
    ]


def test_a_share_goes_where_it_leaves_least_and_never_spans_two() -> None:
    index = of_one_machine((1_000, 300, 600, 0))
    half, rest = gpus(milli=300), gpus(milli=501)
    assert devices(index, half, half, rest, rest) == [(1,), (2,), (0,), None]
    assert explain(index, rest).detail.startswith(
        "largest free share of a gpu 499 < 501; nearest: "
    )


def test_whole_devices_are_those_that_nobody_uses() -> None:
    index = of_one_machine((1_000, 999, 0, 1_000, 1_000))
    assert devices(index, gpus(2), gpus(2), gpus(1)) == [(0, 3), None, (4,)]


def test_what_comes_back_comes_back_to_its_own_device() -> None:
    index = of_one_machine((1_000, 400, 0))
    before, free = index.room.devices.free.copy(), index.free.copy()
    share, whole = gpus(milli=700), gpus(1)
    taken = 0
    for _ in range(1_000):
        taken = index.take(0, share)
        assert named(taken) == (0,)
        index.give_back(0, share, taken)
        taken = index.take(0, whole)
        index.give_back(0, whole, taken)
    assert np.array_equal(index.room.devices.free, before)
    assert np.array_equal(index.free, free)
    with pytest.raises(AssertionError):
        index.give_back(0, share, taken)


def test_without_devices_the_first_so_many_count_as_taken() -> None:
    machine = read("machine m1 gpu=4").fleet.machines[0]
    index = MachineIndex([replace(machine, used=(2_000, 4_096, 3, 0, 0))])
    assert devices(index, gpus(1), gpus(1)) == [(3,), None]
    index.release(MachineId("c1", "m1"), read("pending p gpu=1").pending[0].spec)
    assert index.room.devices.free[:, 0].tolist() == [0, 0, 0, 1_000]


def test_more_devices_than_can_be_told_apart_are_not_offered() -> None:
    machine = read(f"machine m1 gpu={DEVICES_MAX + 6}").fleet.machines[0]
    assert devices(MachineIndex([machine]), gpus(DEVICES_MAX + 1), gpus(DEVICES_MAX)) == [
        None,
        tuple(range(DEVICES_MAX)),
    ]


def test_the_model_of_a_gpu_is_a_label() -> None:
    index = MachineIndex(
        read("""
            machine m1  gpu=1 label:gpu_model=T4
            machine m2  gpu=1 label:gpu_model=A100
        """).fleet.machines
    )
    suits = LabelTerm(key=GPU_MODEL_LABEL, operator=Operator.IN, values=("A100", "H100"))
    asked = shape_for(Resources(gpu=1), Constraints(labels=(suits,)))
    done = assign(index, Batch.of([asked, asked]))
    assert [index.machine(done.slot[0]).name, int(done.slot[1])] == ["m2", UNPLACED]
