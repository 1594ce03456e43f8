"""GPU fragmentation: how much of a machine's idle GPU time stays usable when a task goes there.

Idle GPU time is usable by a typical task when the machine has the cpu, memory and devices for it;
what no typical task can use is a fragment. A task should go where it turns least into fragments.
Measure and idea: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placement.demand import Batch, Rule
from placement.devices import DEVICES_MAX, WHOLE_MILLI
from placement.hands import Hands, Scores
from placement.index import MachineIndex
from placement.room import CPU, GPU, MEMORY, Column, Slots

Parts = npt.NDArray[np.float32]

TYPICAL_PART = 0.95
TYPICAL_MAX = 128
"""The commonest shapes are typical: those that make up so large a part, and at most so many."""
LOST_MAX = 8.0 * WHOLE_MILLI


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """The typical tasks that ask for GPUs.

    Idle thousandths x of one device serve every task that asks for a share of at most x; f devices
    that nobody uses serve every task that asks for at most f whole ones. So the demand is kept as
    sums up to a size, and what idle GPU time is worth is a look into them.
    """

    tasks: int
    """Tasks it was made of."""
    cpu: Column
    memory: Column
    rule: tuple[Rule, ...]
    """By typical task."""
    up_to: Parts
    """(sizes, typical tasks): how often each comes, where it asks for no more than the size: first
    the sizes of shares, then those of whole devices, each from nothing up."""
    by_share: npt.NDArray[np.intp]
    """By idle thousandths of a device, the row of `up_to`."""
    by_devices: npt.NDArray[np.intp]
    """By the number of devices that nobody uses, the row of `up_to`."""

    @classmethod
    def of(cls, batch: Batch) -> "Mix":
        """The mix of a batch."""
        number = np.bincount(batch.code, minlength=len(batch.shapes))
        order = np.argsort(-number, kind="stable")
        before = np.cumsum(number[order]) - number[order]
        common = order[before < TYPICAL_PART * len(batch)][:TYPICAL_MAX]
        some = common[batch.ask[GPU, common] * WHOLE_MILLI + batch.gpu_milli[common] > 0]
        weight = (number[some] / max(len(batch), 1)).astype(np.float32)
        share, whole = batch.gpu_milli[some], batch.ask[GPU, some]
        shares, devices = np.unique(share[share > 0]), np.unique(whole[whole > 0])
        sizes_of_shares, sizes_of_devices = np.append(0, shares), np.append(0, devices)
        return cls(
            tasks=len(batch),
            cpu=batch.ask[CPU, some],
            memory=batch.ask[MEMORY, some],
            rule=tuple(batch.rules[at] for at in batch.rule[some].tolist()),
            up_to=np.vstack(
                [
                    weight * (share > 0) * (share <= sizes_of_shares[:, np.newaxis]),
                    weight * (whole > 0) * (whole <= sizes_of_devices[:, np.newaxis]),
                ]
            ),
            by_share=np.searchsorted(shares, np.arange(WHOLE_MILLI + 1), side="right"),
            by_devices=len(sizes_of_shares)
            + np.searchsorted(devices, np.arange(DEVICES_MAX + 1), side="right"),
        )


def latest_mix(index: MachineIndex, batch: Batch) -> Mix:
    """The mix of this batch, unless the index knows one of more than twice as many tasks: a few
    tasks say little about what will come."""
    known = index.mix
    if known is None or 2 * len(batch) >= known.tasks:
        known = index.mix = Mix.of(batch)
    return known


def gradient(hands: Hands) -> Scores:
    """1 where nothing becomes a fragment; chooses the device of a share on the way."""
    assert isinstance(hands.mix, Mix), "machines with GPUs are dealt with a mix"
    if not len(hands.mix.cpu):  # Nobody asks for GPUs: there is nothing to keep.
        return np.ones((hands.k, len(hands.codes)), dtype=np.float32)
    lost, hands.device = keeping(hands, hands.mix)
    score: Scores = np.float32(1.0) - np.clip(lost, 0.0, LOST_MAX) * np.float32(1 / LOST_MAX)
    return score


def keeping(hands: Hands, mix: Mix) -> tuple[Scores, npt.NDArray[np.int8]]:
    """By place, what becomes a fragment (in thousandths of a device, expected over the mix) when
    the task goes there, and the device that it should have a share of."""
    room = hands.index.room
    slots = hands.all_slots()
    ask, share = hands.batch.ask[:, hands.codes], hands.batch.gpu_milli[hands.codes]
    free = room.devices.free.take(slots, axis=1).astype(np.int32)
    full = (free == WHOLE_MILLI).sum(axis=0, dtype=np.int32)
    now = _Worth(hands.index, mix, slots, np.zeros_like(ask))
    after = _Worth(hands.index, mix, slots, ask)
    # What the cpu and memory taken starve, and what the devices taken were worth beyond that.
    lost = now.of_shares(free).sum(axis=0) + now.of_devices(full)
    lost -= after.of_shares(free).sum(axis=0) + after.of_devices(full)
    device = np.zeros(lost.shape, dtype=np.int8)
    count = ask[GPU]
    if count.any():
        lost += count * after.of_shares(np.full_like(full, WHOLE_MILLI))
        lost += after.of_devices(full) - after.of_devices(full - count)
    if share.any():
        left = free - share
        broken = after.of_shares(free) - after.of_shares(left)
        broken += (free == WHOLE_MILLI) * (after.of_devices(full) - after.of_devices(full - 1))
        # A thousandth of what is left decides between devices that are equal otherwise.
        key = broken + left * np.float32(1e-3)
        key[left < 0] = np.inf
        device = key.argmin(axis=0).astype(np.int8)
        least = np.take_along_axis(broken, device[np.newaxis].astype(np.intp), axis=0)[0]
        lost += np.where(share > 0, least, np.float32(0.0))
    return lost, device


class _Worth:
    """What idle GPU time is worth in each place, `taken` of cpu and memory being gone."""

    def __init__(self, index: MachineIndex, mix: Mix, slots: Slots, taken: Column) -> None:
        self._mix = mix
        self._places = np.arange(slots.size).reshape(slots.shape)
        cpu = index.free[CPU].take(slots) - taken[CPU]
        memory = index.free[MEMORY].take(slots) - taken[MEMORY]
        can = cpu >= mix.cpu[:, np.newaxis, np.newaxis]
        can &= memory >= mix.memory[:, np.newaxis, np.newaxis]
        for rule in set(mix.rule):
            shift = index.rules.shift(index, rule)
            suits = (index.rules.bars.take(slots) << np.int32(shift)) >= 0
            if not suits.all():
                can[[at for at, one in enumerate(mix.rule) if one == rule]] &= suits
        flat = can.reshape(len(can), slots.size).astype(np.float32)
        self._up_to = (mix.up_to @ flat).ravel()

    def of_shares(self, idle: npt.NDArray[np.int32]) -> Parts:
        """Of idle thousandths of a device, for tasks that ask for a share."""
        rows = self._mix.by_share[np.maximum(idle, 0)]
        worth: Parts = self._up_to[rows * self._places.size + self._places]
        return idle * worth

    def of_devices(self, count: npt.NDArray[np.int32]) -> Parts:
        """Of so many devices that nobody uses, for tasks that ask for whole ones."""
        rows = self._mix.by_devices[np.maximum(count, 0)]
        worth: Parts = self._up_to[rows * self._places.size + self._places]
        return np.float32(WHOLE_MILLI) * count * worth
