"""What becomes a fragment, against the measure's own definition, machine by machine."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from domain.resources import Resources
from placement.demand import NO_RULE, Batch, Shape, shape_for
from placement.devices import WHOLE_MILLI
from placement.gradient import Mix, keeping
from placement.hands import barred, one_pool
from placement.index import MachineIndex
from tests.support.scenario import read

Devices = Sequence[int]


def usable(typical: Sequence[Shape], cpu: int, memory: int, free: Devices) -> float:
    """Thousandths that a typical task could use, on average over the typical tasks."""
    total = 0
    for shape in typical:
        asked = shape.resources
        if asked.cpu_milli > cpu or asked.memory_mib > memory:
            continue
        if shape.gpu_milli:
            total += sum(milli for milli in free if milli >= shape.gpu_milli)
        elif 0 < asked.gpu <= free.count(WHOLE_MILLI):
            total += WHOLE_MILLI * free.count(WHOLE_MILLI)
    return total / len(typical)


def a_shape(rng: random.Random) -> Shape:
    milli = rng.choice([0, 0, 200, 500, 800])
    gpu = 0 if milli else rng.choice([0, 1, 2])
    resources = Resources(cpu_milli=rng.randint(1, 4) * 1_000, memory_mib=1_024, gpu=gpu)
    return shape_for(resources, gpu_milli=milli)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_lost_is_what_typical_tasks_can_use_no_more(seed: int) -> None:
    rng = random.Random(seed)
    rows = read("\n".join(f"machine m{n} cpu={rng.randint(1, 8)} gpu=4" for n in range(12)))
    machines = [
        replace(row, gpu_free_milli=tuple(rng.choice([0, 300, 500, 900, 1_000]) for _ in range(4)))
        for row in rows.fleet.machines
    ]
    index = MachineIndex(machines)
    typical = [a_shape(rng) for _ in range(10)]
    batch = Batch.of(typical)
    shift = np.array([index.rules.shift(index, NO_RULE)], dtype=np.int32)
    for code, shape in enumerate(batch.shapes):
        codes = np.array([code], dtype=np.int32)
        hands = one_pool(index, batch, index.everywhere, 0, codes=codes, shifts=shift)
        lost, device = keeping(hands, Mix.of(batch))
        for slot in np.flatnonzero(barred(hands)[:, 0] >= 0).tolist():
            cpu, memory = index.free[:2, slot].tolist()
            free = index.room.devices.free[:, slot].tolist()
            now = usable(typical, cpu, memory, free)
            cpu, memory = cpu - shape.resources.cpu_milli, memory - shape.resources.memory_mib
            options = [
                now - usable(typical, cpu, memory, after) for after in afterwards(shape, free)
            ]
            assert lost[slot, 0] == pytest.approx(min(options), abs=0.5), (seed, slot)
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
