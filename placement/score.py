"""Scorers: how good is that machine for this task, in [0, 1]? Knows nothing of weights or order.

A scorer is (hands) -> one number per place of each hand, meaningful where the task fits. The order
of the floating-point steps is part of the contract: equal inputs must give equal answers.
"""

from collections.abc import Callable

import numpy as np

from placement.devices import WHOLE_MILLI
from placement.hands import Hands, Scores, Table
from placement.room import CPU, GPU, MEMORY

Scorer = Callable[[Hands], Scores]

_IDLE_MAX = 8
_FAR = np.int32(2**31 - 1)


def packing(hands: Hands) -> Scores:
    """Least stranded: the cosine between what the task takes and what the machine has free, of cpu
    and memory (of idle GPUs too, which a task without need of them keeps away from), as parts of
    the machine. A task that takes in the proportion of what is there leaves nothing stranded
    beside the resource that runs out first. Literal best-fit, which looks only at how much is left,
    strands most where demands differ from machines."""
    room, ask = hands.index.room, hands.batch.ask
    # A task that asks nothing of one of them counts as asking for one unit.
    cpu, memory = np.maximum(ask[:2, hands.codes], 1).astype(np.float32)
    ratio = memory / cpu
    cosine: Scores = hands.of(room.along[MEMORY]) * ratio
    cosine += hands.of(room.along[CPU])
    length = hands.of(room.tilt) * (ratio * ratio)
    length += np.float32(1.0)
    np.sqrt(length, out=length)
    cosine /= length
    return cosine


def fullness(hands: Hands) -> Scores:
    """1 where nothing is free, 0 on an empty machine."""
    level: Scores = np.float32(1.0) - hands.of(hands.index.room.level)
    return level


def load(hands: Hands) -> Scores:
    """Most left over: the mean part of cpu, memory and GPUs that would still be free."""
    room, ask = hands.index.room, hands.batch.ask
    capacity = [hands.of(room.capacity[row]).astype(np.float32) for row in (CPU, MEMORY, GPU)]
    asked = ask[:3, hands.codes].astype(np.float32)
    asked[GPU] += hands.batch.gpu_milli[hands.codes] * np.float32(1 / WHOLE_MILLI)
    left: Scores = hands.of(room.level).copy()
    sized = sum((there > 0).astype(np.float32) for there in capacity)
    for amount, there in zip(asked, capacity, strict=True):
        left -= np.divide(amount, there * sized, out=np.zeros_like(left), where=there > 0)
    np.maximum(left, 0.0, out=left)
    return left


def best_fit(hands: Hands) -> Scores:
    """Least left over."""
    return np.float32(1.0) - load(hands)


def balance(hands: Hands) -> Scores:
    """1 where equal parts of cpu and of the GPUs would be left: what is left of one without the
    other is stranded. A machine without GPUs counts as one whose GPUs are used up."""
    return _beside_gpus(hands, CPU)


def memory_balance(hands: Hands) -> Scores:
    """The same of memory."""
    return _beside_gpus(hands, MEMORY)


def _beside_gpus(hands: Hands, column: int) -> Scores:
    room, codes = hands.index.room, hands.codes
    left: Scores = (hands.of(room.free[column]) - hands.batch.ask[column, codes]).astype(np.float32)
    left /= np.maximum(hands.of(room.capacity[column]), 1)
    asked = hands.batch.ask[GPU, codes] * WHOLE_MILLI + hands.batch.gpu_milli[codes]
    idle = (hands.of(room.devices.left) - asked).astype(np.float32)
    idle /= np.maximum(hands.of(room.capacity[GPU]), 1) * np.float32(WHOLE_MILLI)
    left -= idle
    score: Scores = np.float32(1.0) - np.abs(left, out=left)
    return score


def busy(hands: Hands) -> Scores:
    """1 where no GPU would stay idle, 0 where eight or more would: empties are kept whole."""
    codes = hands.codes
    asked = hands.batch.ask[GPU, codes] * WHOLE_MILLI + hands.batch.gpu_milli[codes]
    idle = (hands.of(hands.index.room.devices.left) - asked).astype(np.float32)
    idle *= np.float32(1 / (_IDLE_MAX * WHOLE_MILLI))
    score: Scores = np.float32(1.0) - np.clip(idle, 0.0, 1.0)
    return score


def spread(bad: Table, over: Table) -> Scores:
    """1 where the zone, rack or machine has fewest of the service among those of the hand that can
    take the task, and 1 / (1 + n) where it has n more; `over` counts them."""
    counts = np.where(bad < 0, _FAR, over)
    fewest = counts.min(axis=0)
    score: Scores = np.maximum(over - fewest, 0).astype(np.float32)
    score += np.float32(1.0)
    np.divide(np.float32(1.0), score, out=score)
    return score
