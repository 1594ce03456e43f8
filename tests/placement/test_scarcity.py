"""What is remembered as fitting nowhere, and what makes it worth another look."""

import numpy as np

from domain.resources import Resources
from placement.assign import UNPLACED, assign
from placement.demand import Batch, Shape, shape_for
from placement.index import MachineIndex
from tests.support.scenario import read

SMALL, LARGE = (shape_for(Resources(cpu_milli=cpu, memory_mib=64)) for cpu in (3_000, 5_000))


def placed(index: MachineIndex, *shapes: Shape) -> list[bool]:
    return (assign(index, Batch.of(shapes)).slot != UNPLACED).tolist()


def test_what_fits_nowhere_is_looked_for_again_only_when_room_has_grown() -> None:
    rows = read("machine m1 cpu=4\nmachine m2 cpu=4").fleet.machines
    index = MachineIndex(rows)
    assert placed(index, LARGE, SMALL, SMALL, SMALL) == [False, True, True, False]
    assert all(shape in index.full[False] for shape in (SMALL, LARGE))
    assert all(shape in index.full[True] for shape in (SMALL, LARGE))
    index.give_back(0, SMALL)
    assert not index.full[False]
    assert placed(index, LARGE, SMALL) == [False, True]


def test_who_asks_for_no_less_than_what_failed_is_given_up_with_it() -> None:
    index = MachineIndex(read("machine m1 cpu=2").fleet.machines)
    assert placed(index, SMALL, LARGE) == [False, False]
    assert LARGE in index.full[False]


def test_heartbeats_as_columns_are_states_and_wake_what_was_given_up() -> None:
    index = MachineIndex(read("machine m1 cpu=4 gpu=1\nmachine m2 cpu=4").fleet.machines)
    slots = np.arange(2)
    used = np.zeros((5, 2), dtype=np.int32)
    used[0] = 3_500
    answers = np.ones(2, dtype=np.bool_)
    index.put_used(slots, used, answers)
    index.put_used(slots, used, answers)
    assert index.free[0, :2].tolist() == [500, 500]
    assert placed(index, SMALL) == [False]
    index.put_used(slots, np.zeros_like(used), answers)
    assert placed(index, SMALL, SMALL) == [True, True]
    index.put_used(slots, np.zeros_like(used), ~answers)
    assert placed(index, SMALL) == [False]
    assert index.room.free[2, :2].sum() == 1
