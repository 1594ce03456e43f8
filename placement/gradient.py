"""GPU fragmentation: how much of a machine's idle GPU time stays usable when a task goes there.

Idle GPU time is usable by a typical task when the machine has the cpu, memory and devices for it.
A task should go where it takes least from the others. Idea and the linear form of the measure:
Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC 2023. Here a device is worth its idle time times the chance that one of the
next few tasks can use it: what one task in ten can use is not lost, it only waits a little.
"""

import numpy as np
import numpy.typing as npt

from placement.devices import WHOLE_MILLI
from placement.hands import Hands, Scores
from placement.index import MachineIndex
from placement.mix import Mix
from placement.room import CPU, GPU, MEMORY, Column, Slots

Parts = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

NEXT_TASKS = 12
"""Idle GPU time is worth what it is to that many tasks to come."""
LOST_MAX = 8.0 * WHOLE_MILLI


def gradient(hands: Hands) -> Scores:
    """1 where nothing is lost to others; chooses the device of a share on the way."""
    assert isinstance(hands.mix, Mix), "machines with GPUs are dealt with a mix"
    if not len(hands.mix.cpu):  # Nobody asks for GPUs: there is nothing to keep.
        return np.ones((hands.k, len(hands.codes)), dtype=np.float32)
    lost, hands.device = keeping(hands, hands.mix)
    score: Scores = np.float32(1.0) - np.clip(lost, 0.0, LOST_MAX) * np.float32(1 / LOST_MAX)
    return score


def usable(chance: Parts) -> Parts:
    """The chance that at least one of the next tasks can use it, from that of one task. In products
    alone, which are the same on every machine."""
    none = np.float32(1.0) - chance
    none *= none
    none *= none
    result: Parts = np.float32(1.0) - none * none * none
    return result


def keeping(hands: Hands, mix: Mix) -> tuple[Scores, npt.NDArray[np.int8]]:
    """By place, what the other tasks lose when the task goes there, in thousandths of a device as
    `usable` counts them, and the device that it should have a share of."""
    room = hands.index.room
    slots = hands.all_slots()
    ask, share = hands.batch.ask[:, hands.codes], hands.batch.gpu_milli[hands.codes]
    free = room.devices.free.take(slots, axis=1).astype(np.int32)
    unused = free == WHOLE_MILLI
    full = unused.sum(axis=0, dtype=np.int32)
    part = np.where(unused, 0, free)
    suits = mix.suits(hands.index, slots)
    now = _Worth(hands.index, mix, suits, slots, np.zeros_like(ask))
    after = _Worth(hands.index, mix, suits, slots, ask)
    count = ask[GPU]
    lost: Scores = now.of_parts(part) + now.of_unused(full)
    lost -= after.of_parts(part) + after.of_unused(full - count)
    device = np.zeros(lost.shape, dtype=np.int8)
    if share.any():
        broken = _broken(after, part, unused, full, share)
        # A thousandth of what is left decides between devices that are equal otherwise.
        key = broken + (free - share) * np.float32(1e-3)
        key[free < share] = np.inf
        device = key.argmin(axis=0).astype(np.int8)
        least = np.take_along_axis(broken, device[np.newaxis].astype(np.intp), axis=0)[0]
        lost += np.where(share > 0, least, np.float32(0.0))
    return lost, device


def _broken(
    after: "_Worth", part: npt.NDArray[np.int32], unused: Mask, full: Column, share: Column
) -> Parts:
    """By device and place, what is lost when the share is taken from that device."""
    of_part = after.of_each(part) - after.of_each(np.maximum(part - share, 0))
    rest = np.broadcast_to(WHOLE_MILLI - share, full.shape)
    of_unused = after.of_unused(full) - after.of_unused(full - 1) - after.of_each(rest)
    return np.where(unused, of_unused, of_part)


class _Worth:
    """What idle GPU time is worth in each place, `taken` of cpu and memory being gone."""

    def __init__(
        self, index: MachineIndex, mix: Mix, suits: Mask | None, slots: Slots, taken: Column
    ) -> None:
        self._mix = mix
        self._places = np.arange(slots.size).reshape(slots.shape)
        cpu = index.free[CPU].take(slots) - taken[CPU]
        memory = index.free[MEMORY].take(slots) - taken[MEMORY]
        can = cpu >= mix.cpu[:, np.newaxis, np.newaxis]
        can &= memory >= mix.memory[:, np.newaxis, np.newaxis]
        if suits is not None:
            can &= suits
        chance = mix.up_to @ can.reshape(len(can), slots.size).astype(np.float32)
        of_shares = chance[: mix.shares]
        self._part = usable(of_shares).ravel()
        self._unused = usable(chance[mix.shares :] + of_shares[-1]).ravel()

    def of_each(self, part: npt.NDArray[np.int32]) -> Parts:
        """Of idle thousandths of devices that somebody uses, device by device."""
        rows = self._mix.by_share[part]
        worth: Parts = self._part[rows * self._places.size + self._places]
        worth *= part
        return worth

    def of_parts(self, part: npt.NDArray[np.int32]) -> Parts:
        """Of all of a machine."""
        worth: Parts = self.of_each(part).sum(axis=0)
        return worth

    def of_unused(self, count: npt.NDArray[np.int32]) -> Parts:
        """Of so many devices that nobody uses; below none it is that of none."""
        count = np.maximum(count, 0)
        rows = self._mix.by_devices[count]
        worth: Parts = self._unused[rows * self._places.size + self._places]
        return np.float32(WHOLE_MILLI) * count * worth
