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
from placement.mix import Mix
from placement.room import CPU, GPU, MEMORY

Parts = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

LOST_MAX = 8.0 * WHOLE_MILLI


def gradient(hands: Hands) -> Scores:
    """1 where nothing is lost to others; chooses the device of a share on the way."""
    assert isinstance(hands.mix, Mix), "machines with GPUs are dealt with a mix"
    if not len(hands.mix.typical):  # Nobody asks for GPUs: there is nothing to keep.
        return np.ones((hands.k, len(hands.codes)), dtype=np.float32)
    lost, hands.device = keeping(hands, hands.mix)
    score: Scores = np.float32(1.0) - np.clip(lost, 0.0, LOST_MAX) * np.float32(1 / LOST_MAX)
    return score


def keeping(hands: Hands, mix: Mix) -> tuple[Scores, npt.NDArray[np.int8]]:
    """By place, what the other tasks lose when the task goes there, in thousandths of a device as
    `placement.worth` counts them, and the device that it should have a share of."""
    index, slots = hands.index, hands.all_slots()
    ask, share = hands.batch.ask[:, hands.codes], hands.batch.gpu_milli[hands.codes]
    free = index.room.devices.free.take(slots, axis=1).astype(np.int32)
    unused = free == WHOLE_MILLI
    full = unused.sum(axis=0, dtype=np.int32)
    part = np.where(unused, 0, free)
    worth = mix.worth(index)
    cpu, memory = index.free[CPU].take(slots), index.free[MEMORY].take(slots)
    now = worth.at(slots, cpu, memory)
    after = worth.at(slots, cpu - ask[CPU], memory - ask[MEMORY])
    kept = worth.of_each(after, part)
    lost: Scores = worth.of_each(now, part).sum(axis=0) - kept.sum(axis=0)
    lost += worth.of_unused(now, full) - worth.of_unused(after, full - ask[GPU])
    device = np.zeros(lost.shape, dtype=np.int8)
    if share.any():
        left = free - share
        broken = kept - worth.of_each(after, np.where(unused, 0, np.maximum(left, 0)))
        # A device that nobody uses leaves fewer of these, and the rest of itself.
        rest = worth.of_each(after, np.broadcast_to(WHOLE_MILLI - share, full.shape))
        opened = worth.of_unused(after, full) - worth.of_unused(after, full - 1) - rest
        broken = np.where(unused, opened, broken)
        # A thousandth of what is left decides between devices that are equal otherwise.
        key = broken + left * np.float32(1e-3)
        key[left < 0] = np.inf
        device = key.argmin(axis=0).astype(np.int8)
        least = np.take_along_axis(broken, device[np.newaxis].astype(np.intp), axis=0)[0]
        lost += np.where(share > 0, least, np.float32(0.0))
    return lost, device
