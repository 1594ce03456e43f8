"""What is free and yet of no use to the tasks of this stream. Reads the index, changes nothing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from drystone.simulate.accounts import GPU, MEASURED, Accounts, asked
from drystone.simulate.engine import Engine
from drystone.simulate.records import Demand, TaskRow

Milli = npt.NDArray[np.int64]

COVERED = 0.95
"""Typical demands are the most frequent ones that make up this share of a stream."""
TYPICAL_MAX = 200
FRAGMENTED = "fragmented_gpu"


@dataclass(frozen=True, slots=True)
class Typical:
    """The demands that decide what is of use, with their shares (their sum is 1)."""

    shares: tuple[tuple[Demand, float], ...]

    @classmethod
    def of(cls, stream: Sequence[TaskRow]) -> Self:
        """Those of a stream."""
        demands = {id(row.demand): row.demand for row in stream}
        counts = Counter(id(row.demand) for row in stream)
        chosen: list[tuple[Demand, int]] = []
        covered = 0
        for which, count in counts.most_common(TYPICAL_MAX):
            if covered >= COVERED * len(stream):
                break
            chosen.append((demands[which], count))
            covered += count
        return cls(tuple((demand, count / covered) for demand, count in chosen))


def stranded(engine: Engine, accounts: Accounts, typical: Typical) -> Mapping[str, float]:
    """Per resource, the share of the fleet's capacity that is free on machines which have no room
    for one more typical task though they meet its rules, averaged over the typical tasks that ask
    for the resource. Of GPUs, also what is left on devices too full for the task.

    `fragmented_gpu` follows Weng et al. (USENIX ATC 2023): over all typical tasks, the GPU share
    that is idle on machines which cannot take the task (or that it does not want), or on devices
    with less left than it asks of one.
    """
    if not accounts.free or not typical.shares:
        return {}
    free = np.maximum(np.array(accounts.free, dtype=np.int64), 0)
    devices = _devices(accounts)
    lost = np.zeros(len(MEASURED))
    weight = np.zeros(len(MEASURED))
    fragmented = 0.0
    for demand, share in typical.shares:
        useless = ~engine.could_hold(demand)
        full = useless & engine.may_use(demand)
        asks = np.array(asked(demand)) > 0
        weight += share * asks
        lost += share * asks * free[full].sum(axis=0)
        wasted = _unusable(devices, demand)
        wasted[useless] = devices[useless].sum(axis=1)
        fragmented += share * float(wasted.sum())
        if demand.gpu_total_milli:
            lost[GPU] += share * float(wasted[~useless].sum())
    found = {
        name: float(lost[column] / weight[column] / accounts.capacity[column])
        for column, name in enumerate(MEASURED)
        if accounts.capacity[column] and weight[column]
    }
    if accounts.capacity[GPU]:
        found[FRAGMENTED] = fragmented / accounts.capacity[GPU]
    return found


def _devices(accounts: Accounts) -> Milli:
    """Free thousandths, machine by device."""
    most = max(map(len, accounts.devices))
    table = np.zeros((len(accounts.devices), most), dtype=np.int64)
    for machine, free in enumerate(accounts.devices):
        table[machine, : len(free)] = free
    return table


def _unusable(devices: Milli, demand: Demand) -> Milli:
    """Per machine, what is idle on devices too full for the task; all of it if it wants none."""
    usable = devices >= demand.milli_per_device if demand.gpu_total_milli else False
    idle: Milli = np.where(usable, 0, devices).sum(axis=1)
    return idle
