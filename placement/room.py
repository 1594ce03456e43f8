"""What each machine has and has free, as 32-bit columns, and what scores read off it.

Quantities are integers, so that what is taken and given back a million times is equal to the bit.
Knows no names, labels or tasks.
"""

import numpy as np
import numpy.typing as npt

from domain.fleet import MachineColumns
from domain.resources import COLUMNS
from placement.devices import DEVICES_MAX, WHOLE_MILLI, DeviceTable

Column = npt.NDArray[np.int32]
Slots = npt.NDArray[np.intp]
Parts = npt.NDArray[np.float32]

CPU, MEMORY, GPU = 0, 1, 2
"""The columns that packing looks at: the ones that run out."""
_NARROW = ("tilt", "level")
_WIDE = ("capacity", "free", "per_unit", "along")


class RoomTable:
    """Columns over machine slots; rows are the standard resources, then named ones."""

    def __init__(self) -> None:
        self.capacity: Column = np.zeros((len(COLUMNS), 0), dtype=np.int32)
        self.free: Column = np.zeros((len(COLUMNS), 0), dtype=np.int32)
        """Below zero where more is held than there is."""
        self.per_unit: Parts = np.zeros((2, 0), dtype=np.float32)
        """1 / capacity of cpu and memory: makes parts of quantities; 0 where there is none."""
        self.along: Parts = np.zeros((2, 0), dtype=np.float32)
        """What is free of cpu and of memory, as parts of the machine, scaled to length 1 together
        with the part of its GPUs; that of memory times the root of `tilt`."""
        self.tilt: Parts = np.zeros(0, dtype=np.float32)
        """(cpu / memory of the machine)^2: a task that asks r times as much memory as cpu asks
        r * sqrt(tilt) times as large a part of the memory as of the cpu."""
        self.level: Parts = np.zeros(0, dtype=np.float32)
        """The mean part that is free, of cpu, memory and GPUs where there are any."""
        self.devices = DeviceTable()
        self.overdrawn = False
        """Some quantity may be below zero."""
        self._extras: dict[str, int] = {}

    def grow(self, slots: int) -> None:
        """Make room for so many slots."""
        for name in _WIDE:
            wide = getattr(self, name)
            wider = np.zeros((len(wide), slots), dtype=wide.dtype)
            wider[:, : wide.shape[1]] = wide
            setattr(self, name, wider)
        for name in _NARROW:
            long = getattr(self, name)
            longer = np.zeros(slots, dtype=long.dtype)
            longer[: len(long)] = long
            setattr(self, name, longer)
        self.devices.grow(slots)

    @property
    def nbytes(self) -> int:
        """The size of all columns."""
        own = sum(getattr(self, name).nbytes for name in (*_WIDE, *_NARROW))
        return int(own + self.devices.nbytes)

    def extra_column(self, name: str) -> int | None:
        """The column of a named resource; None when no machine has it."""
        return self._extras.get(name)

    def name_extras(self, names: set[str]) -> None:
        """Give each of these named resources a column."""
        for name in sorted(names - self._extras.keys()):
            self._extras[name] = len(self.capacity)
            self.capacity = np.vstack([self.capacity, np.zeros_like(self.capacity[:1])])
            self.free = np.vstack([self.free, np.zeros_like(self.free[:1])])

    def put_columns(self, columns: MachineColumns, slots: Slots) -> bool:
        """From now on these machines have this. True when that is more than before somewhere."""
        extras = columns.extras
        self.name_extras({n for both in extras.values() for one in both for n in one})
        capacity = np.zeros((len(self.capacity), len(slots)), dtype=np.int64)
        used = np.zeros_like(capacity)
        for row in range(len(COLUMNS)):
            capacity[row] = columns.capacity[row]
            used[row] = columns.used[row]
        for at, both in extras.items():
            for table, named in zip((capacity, used), both, strict=True):
                for name, amount in named.items():
                    table[self.extra_column(name), at] = amount
        # What is beyond the devices that can be told apart is not offered.
        capacity[GPU] = np.minimum(capacity[GPU], DEVICES_MAX)
        more = self._put_devices(columns, slots, capacity[GPU], used[GPU])
        return self.put(slots, capacity, (capacity - used).astype(np.int32)) or more

    def _put_devices(
        self,
        columns: MachineColumns,
        slots: Slots,
        count: npt.NDArray[np.int64],
        used: npt.NDArray[np.int64],
    ) -> bool:
        """The devices, and in `used` how many of them are not wholly free; True: some have more."""
        devices = self.devices
        with_gpu = np.flatnonzero((count > 0) | (self.capacity[GPU, slots] > 0))
        if not len(with_gpu):
            return False
        some = slots[with_gpu]
        before = devices.left[some]
        devices.put_counts(some, count[with_gpu], used[with_gpu])
        for at, free_milli in columns.gpu_free_milli.items():
            slot = int(slots[at])
            devices.put_shares(slot, free_milli)
            used[at] = count[at] - devices.wholly_free(slot)
        return bool((devices.left[some] > before).any())

    def put(self, slots: Slots, capacity: npt.NDArray[np.int64], free: Column) -> bool:
        """From now on these machines have this (int of shape (columns, slots)). True when that is
        more room than before on some machine."""
        grown = bool((free > self.free[:, slots]).any())
        self.capacity[:, slots] = capacity
        self.free[:, slots] = free
        self.overdrawn |= bool((free < 0).any())
        sizes = capacity[:2].astype(np.float32)
        per_unit = np.divide(np.float32(1.0), sizes, out=np.zeros_like(sizes), where=sizes > 0)
        self.per_unit[:, slots] = per_unit
        both = per_unit.min(axis=0) > 0
        ratio = np.divide(sizes[CPU], sizes[MEMORY], out=np.zeros_like(sizes[CPU]), where=both)
        self.tilt[slots] = ratio * ratio
        self.derive(slots)
        return grown

    def put_used(self, slots: Slots, used: Column) -> bool:
        """From now on so much is in use of the standard resources but GPUs, whose row is ignored
        (int32 of shape (columns, slots)). True when somewhere less than before."""
        grown = False
        for column, amounts in enumerate(used):
            if column == GPU:
                continue
            free = self.free[column]
            after = self.capacity[column].take(slots)
            after -= amounts
            grown = grown or bool((after > free.take(slots)).any())
            self.overdrawn = self.overdrawn or bool(after.min(initial=0) < 0)
            free[slots] = after
        self.derive(slots)
        return grown

    def derive(self, slots: Slots) -> None:
        """Bring what scores read up to date on these machines.

        The order of the floating-point steps decides about ties, so it is the same for one machine
        and for many, and for machines without GPUs whether or not others have any.
        """
        cpu, memory = (self._part_free(column, slots) for column in (CPU, MEMORY))
        length = cpu * cpu
        length += memory * memory
        level = cpu + memory
        kinds: Parts | np.float32 = np.float32(2.0)
        gpu = self.capacity[GPU].take(slots)
        if gpu.any():
            part, has = self._part_idle(slots, gpu)
            length += part * part
            level += part
            kinds = kinds + has
        np.sqrt(length, out=length)
        length[length == 0] = 1.0
        level /= kinds
        cpu /= length
        memory /= length
        memory *= np.sqrt(self.tilt.take(slots))
        self.along[CPU][slots], self.along[MEMORY][slots] = cpu, memory
        self.level[slots] = level

    def _part_free(self, column: int, slots: Slots) -> Parts:
        there = self.free[column].take(slots)
        if self.overdrawn:
            np.maximum(there, 0, out=there)
        part: Parts = there.astype(np.float32)
        part *= self.per_unit[column].take(slots)
        return part

    def _part_idle(self, slots: Slots, count: Column) -> tuple[Parts, Parts]:
        """The part of its GPUs that is idle, and 1 where the machine has any, else 0."""
        idle = self.devices.left.take(slots).astype(np.float32)
        idle *= np.float32(1 / WHOLE_MILLI)
        idle /= np.maximum(count, 1).astype(np.float32)
        return idle, (count > 0).astype(np.float32)

    def take(self, slots: Slots, amounts: Column) -> None:
        """So much less on machines that differ from each other (int32 of shape (columns, slots));
        no column may fall below zero for it. The count of free devices is not touched here."""
        for free, amount in zip(self.free, amounts, strict=False):
            if amount.any():
                after = free.take(slots)
                after -= amount
                assert after.min() >= 0 or not amount[after < 0].any(), "more taken than there is"
                free[slots] = after

    def give_back(self, slots: Slots, amounts: Column) -> None:
        """So much more, likewise; never more than there is in all."""
        for free, capacity, amount in zip(self.free, self.capacity, amounts, strict=False):
            if amount.any():
                after = free.take(slots)
                after += amount
                over = after > capacity.take(slots)
                assert not (over & (amount != 0)).any(), "more given back than there is"
                free[slots] = after

    def clear(self, slot: int) -> None:
        """The machine has left."""
        for name in (*_WIDE, *_NARROW):
            getattr(self, name)[..., slot] = 0
        self.devices.clear(slot)
