"""GPUs as devices: what is free of each, in thousandths. A share of one never spans two.

Decides which devices of a machine a task gets; knows nothing of other resources or of scores.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

WHOLE_MILLI = 1_000
DEVICES_MAX = 64
"""Devices of one machine that are offered, so that a set of them is one 64-bit word."""

Shares = npt.NDArray[np.int16]


def named(devices: int) -> tuple[int, ...]:
    """The indexes of the devices in a set written as bits."""
    return tuple(at for at in range(devices.bit_length()) if devices >> at & 1)


def as_bits(devices: Sequence[int]) -> int:
    """The set of devices with these indexes, as bits."""
    return sum(1 << at for at in set(devices))


class DeviceTable:
    """Free thousandths per device (row) and machine slot (column); 0 where there is no device."""

    def __init__(self) -> None:
        self.free: Shares = np.zeros((0, 0), dtype=np.int16)
        self.count: Shares = np.zeros(0, dtype=np.int16)
        """Devices of each machine."""
        self.most: Shares = np.zeros(0, dtype=np.int16)
        """The largest share that one device of the machine has free."""
        self.left: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        """Free thousandths of all devices of the machine."""

    @property
    def nbytes(self) -> int:
        """The size of all columns."""
        return sum(c.nbytes for c in (self.free, self.count, self.most, self.left))

    def grow(self, slots: int) -> None:
        """Make room for so many slots."""
        before = self.free
        self.free = np.zeros((len(before), slots), dtype=np.int16)
        self.free[:, : before.shape[1]] = before
        for name in ("count", "most", "left"):
            short = getattr(self, name)
            longer = np.zeros(slots, dtype=short.dtype)
            longer[: len(short)] = short
            setattr(self, name, longer)

    def put_counts(
        self,
        slots: npt.NDArray[np.intp],
        count: npt.NDArray[np.int64],
        used: npt.NDArray[np.int64],
    ) -> None:
        """Machines of which only numbers are known: the first `used` devices are taken whole."""
        count = np.minimum(count, DEVICES_MAX)
        self._widen(int(count.max(initial=0)))
        self.count[slots] = count
        at = np.arange(len(self.free))[:, np.newaxis]
        self.free[:, slots] = np.where((at >= used) & (at < count), WHOLE_MILLI, 0)
        self._sum(slots)

    def put_shares(self, slot: int, free_milli: Sequence[int]) -> None:
        """A machine of which every device is known."""
        assert len(free_milli) <= DEVICES_MAX
        assert all(0 <= milli <= WHOLE_MILLI for milli in free_milli)
        self._widen(len(free_milli))
        self.count[slot] = len(free_milli)
        self.free[:, slot] = 0
        self.free[: len(free_milli), slot] = free_milli
        self._sum(np.array([slot], dtype=np.intp))

    def wholly_free(self, slot: int) -> int:
        """How many devices of the machine nobody uses."""
        return int(np.count_nonzero(self.free[:, slot] == WHOLE_MILLI))

    def take(self, slot: int, gpu: int, milli: int, devices: int | None = None) -> int:
        """The devices that the task gets, as bits. Unless they are chosen already: whole ones from
        the front, a share from the device on which it leaves least."""
        there = self.free[:, slot]
        if devices is not None:
            chosen = np.array(named(devices), dtype=np.intp)
        elif gpu:
            chosen = np.flatnonzero(there == WHOLE_MILLI)[:gpu]
        else:
            after = there.astype(np.int32) - milli
            chosen = np.array([np.where(after >= 0, after, WHOLE_MILLI).argmin()])
        asked = milli or WHOLE_MILLI
        assert len(chosen) == (gpu or 1), (slot, gpu, milli)
        assert (there[chosen] >= asked).all(), (slot, gpu, milli)
        there[chosen] -= asked
        self._sum(np.array([slot], dtype=np.intp))
        return as_bits(chosen.tolist())

    def give_back(self, slot: int, gpu: int, milli: int, devices: int | None) -> None:
        """Undo a `take` that answered with these devices; None: the last ones taken whole."""
        there = self.free[:, slot]
        if devices is None:
            assert not milli, "a share comes back to its own device"
            taken = np.flatnonzero(there[: self.count[slot]] == 0)
            chosen = taken[max(0, len(taken) - gpu) :]
        else:
            chosen = np.array(named(devices), dtype=np.intp)
        after = there[chosen].astype(np.int32) + (milli or WHOLE_MILLI)
        assert len(chosen) == (gpu or 1), (slot, gpu, milli, devices)
        assert (after <= WHOLE_MILLI).all(), (slot, gpu, milli, devices)
        there[chosen] = after
        self._sum(np.array([slot], dtype=np.intp))

    def clear(self, slot: int) -> None:
        """The machine has left."""
        self.free[:, slot] = 0
        self.count[slot] = self.most[slot] = self.left[slot] = 0

    def _widen(self, devices: int) -> None:
        if devices > len(self.free):
            more = np.zeros((devices - len(self.free), self.free.shape[1]), dtype=np.int16)
            self.free = np.vstack([self.free, more])

    def _sum(self, slots: npt.NDArray[np.intp]) -> None:
        there = self.free[:, slots]
        self.most[slots] = there.max(axis=0, initial=0)
        self.left[slots] = there.sum(axis=0, dtype=np.int32)
