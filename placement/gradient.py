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
from placement.devices import WHOLE_MILLI
from placement.hands import Hands, Scores
from placement.index import MachineIndex
from placement.room import CPU, GPU, MEMORY, Column

Parts = npt.NDArray[np.float32]

TYPICAL_PART = 0.95
TYPICAL_MAX = 128
"""The commonest shapes are typical: those that make up so large a part, and at most so many."""
LOST_MAX = 8.0 * WHOLE_MILLI
_NO_DEVICE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """The typical tasks that ask for GPUs, sorted by what they ask of devices: a class each."""

    tasks: int
    """Tasks it was made of."""
    cpu: Column
    memory: Column
    weight: Parts
    """(classes, typical tasks): how often each comes, in the row of its class."""
    share: Column
    """By class, the thousandths asked of one device; 0 in a class of whole devices."""
    whole: Column
    """By class, the devices asked for whole; 0 in a class of shares."""
    rule: tuple[Rule, ...]
    """By typical task."""

    @classmethod
    def of(cls, batch: Batch) -> "Mix":
        """The mix of a batch."""
        number = np.bincount(batch.code, minlength=len(batch.shapes))
        order = np.argsort(-number, kind="stable")
        before = np.cumsum(number[order]) - number[order]
        common = order[before < TYPICAL_PART * len(batch)][:TYPICAL_MAX]
        needs = batch.ask[GPU, common] * WHOLE_MILLI + batch.gpu_milli[common]
        some = common[needs > 0]
        classes, row = np.unique(needs[needs > 0], return_inverse=True)
        weight = np.zeros((len(classes), len(some)), dtype=np.float32)
        weight[row, np.arange(len(some))] = number[some] / max(len(batch), 1)
        return cls(
            tasks=len(batch),
            cpu=batch.ask[CPU, some],
            memory=batch.ask[MEMORY, some],
            weight=weight,
            share=np.where(classes < WHOLE_MILLI, classes, 0).astype(np.int32),
            whole=(classes // WHOLE_MILLI).astype(np.int32),
            rule=tuple(batch.rules[at] for at in batch.rule[some].tolist()),
        )


def latest_mix(index: MachineIndex, batch: Batch) -> Mix:
    """The mix of this batch, unless the index knows one of more than twice as many tasks: a few
    tasks say little about what will come."""
    known = index.mix
    if known is None or 2 * len(batch) >= known.tasks:
        known = index.mix = Mix.of(batch)
    return known


@dataclass(slots=True)
class _Idle:
    """Some columns of a round as (k, b) tables."""

    free: Parts
    """(devices, k, b): thousandths."""
    full: Parts
    """(k, b): devices that nobody uses."""
    weight: Parts
    """(classes, k, b): how often tasks of a class come that have the cpu and memory for it, after
    the round's own task has taken its own."""


def keeping(hands: Hands, mix: Mix) -> tuple[Scores, npt.NDArray[np.int8]]:
    """By place, what becomes a fragment (in thousandths of a device, expected over the mix) when
    the task goes there, and the device that it should have a share of (-1: no share)."""
    index = hands.index
    share = hands.batch.gpu_milli[hands.codes]
    lost = np.zeros((hands.k, len(hands.codes)), dtype=np.float32)
    device = np.full(lost.shape, _NO_DEVICE, dtype=np.int8)
    if not len(mix.share):
        return lost, device
    slots = hands.all_slots()
    for columns in (np.flatnonzero(share > 0), np.flatnonzero(share == 0)):
        if not len(columns):
            continue
        codes, some = hands.codes[columns], slots[:, columns]
        ask = hands.batch.ask[:, codes]
        free = index.room.devices.free[:, some].astype(np.float32)
        full = (free == WHOLE_MILLI).sum(axis=0, dtype=np.float32)
        now = _weights(index, mix, some, np.zeros_like(ask))
        after = _weights(index, mix, some, ask)
        usable = _usable(mix, free, full)
        starved = ((now - after) * usable).sum(axis=0)
        idle = _Idle(free, full, after)
        if share[columns[0]]:
            broken, at = _by_share(mix, idle, share[columns].astype(np.float32))
            device[:, columns] = at
        else:
            broken = _by_devices(mix, idle, ask[GPU].astype(np.float32))
        lost[:, columns] = starved + broken
    return lost, device


def gradient(hands: Hands) -> Scores:
    """1 where nothing becomes a fragment; chooses the device of a share on the way."""
    assert isinstance(hands.mix, Mix), "machines with GPUs are dealt with a mix"
    lost, hands.device = keeping(hands, hands.mix)
    score: Scores = np.float32(1.0) - np.clip(lost, 0.0, LOST_MAX) * np.float32(1 / LOST_MAX)
    return score


def _weights(index: MachineIndex, mix: Mix, slots: npt.NDArray[np.intp], taken: Column) -> Parts:
    """(classes, k, b): how often tasks come that have the cpu and memory there, less `taken`."""
    cpu = index.free[CPU].take(slots) - taken[CPU]
    memory = index.free[MEMORY].take(slots) - taken[MEMORY]
    can = cpu >= mix.cpu[:, np.newaxis, np.newaxis]
    can &= memory >= mix.memory[:, np.newaxis, np.newaxis]
    for rule in set(mix.rule):
        shift = index.rules.shift(index, rule)
        suits = (index.rules.bars.take(slots) << np.int32(shift)) >= 0
        if not suits.all():
            can[[at for at, one in enumerate(mix.rule) if one == rule]] &= suits
    flat = can.reshape(len(can), -1).astype(np.float32)
    weights: Parts = (mix.weight @ flat).reshape(-1, *slots.shape)
    return weights


def _usable(mix: Mix, free: Parts, full: Parts) -> Parts:
    """(classes, k, b): the idle thousandths that a task of the class could use."""
    usable = np.empty((len(mix.share), *full.shape), dtype=np.float32)
    for row, (share, whole) in enumerate(zip(mix.share.tolist(), mix.whole.tolist(), strict=True)):
        if share:
            usable[row] = np.where(free >= share, free, np.float32(0.0)).sum(axis=0)
        else:
            usable[row] = np.where(full >= whole, full * WHOLE_MILLI, np.float32(0.0))
    return usable


def _by_devices(mix: Mix, idle: _Idle, count: Parts) -> Scores:
    """What whole devices taken make unusable for others, beside themselves."""
    lost: Scores = np.zeros_like(idle.full)
    left = idle.full - count
    for row, (share, whole) in enumerate(zip(mix.share.tolist(), mix.whole.tolist(), strict=True)):
        if share:
            gone: Scores = np.broadcast_to(count * np.float32(WHOLE_MILLI), lost.shape)
        else:
            gone = WHOLE_MILLI * (
                np.where(idle.full >= whole, idle.full, np.float32(0.0))
                - np.where(left >= whole, left, np.float32(0.0))
            )
        lost += idle.weight[row] * gone
    return lost


def _by_share(mix: Mix, idle: _Idle, milli: Parts) -> tuple[Scores, npt.NDArray[np.int8]]:
    """The same of a share, on the device where it is least; of equal ones the fullest device."""
    before, after = idle.free, idle.free - milli
    lost = np.zeros_like(before)
    whole = before == WHOLE_MILLI
    fewer = idle.full - np.float32(1.0)
    for row, (share, count) in enumerate(zip(mix.share.tolist(), mix.whole.tolist(), strict=True)):
        if share:
            gone = np.where(before >= share, before, np.float32(0.0))
            gone -= np.where(after >= share, after, np.float32(0.0))
        else:
            one_less = np.where(idle.full >= count, idle.full, np.float32(0.0))
            one_less -= np.where(fewer >= count, fewer, np.float32(0.0))
            gone = np.where(whole, WHOLE_MILLI * one_less, np.float32(0.0))
        lost += idle.weight[row] * gone
    # A thousandth of what is left decides between equals.
    key = lost + after * np.float32(1e-3)
    key[after < 0] = np.inf
    at = key.argmin(axis=0)
    return np.take_along_axis(lost, at[np.newaxis], axis=0)[0], at.astype(np.int8)
