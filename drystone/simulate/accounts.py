"""What is in use on each machine and in all: the simulation's own books, apart from the index.

They tell how much is used over time, and how much room a machine has at most; they place nothing.
"""

from collections.abc import Sequence

from drystone.simulate.records import DEVICE_MILLI, Amounts, Demand, MachineRow

MEASURED = ("cpu_milli", "memory_mib", "gpu_milli", "disk_mib", "net_mbps")
"""What is summed up: as `Amounts`, GPUs in thousandths of a device."""
GPU = MEASURED.index("gpu_milli")

Measures = tuple[int, int, int, int, int]


class Accounts:
    """Free room per machine, by device where there are GPUs, and what all of them use."""

    def __init__(self, machines: Sequence[MachineRow]) -> None:
        self.free: list[list[int]] = []
        """By machine, in the order of MEASURED."""
        self.devices: list[list[int]] = []
        """By machine, thousandths free on each device."""
        self.capacity = [0] * len(MEASURED)
        self.used = [0] * len(MEASURED)
        self._machines = machines
        for one in machines:
            room, taken = measures(one.capacity), measures(one.reserved)
            self.free.append([a - b for a, b in zip(room, taken, strict=True)])
            self.devices.append([DEVICE_MILLI] * one.capacity.gpu)
            for column, (amount, reserved) in enumerate(zip(room, taken, strict=True)):
                self.capacity[column] += amount
                self.used[column] += reserved

    def take(self, machine: int, demand: Demand, devices: Sequence[int]) -> None:
        """A task begins to hold room there."""
        self._move(machine, demand, devices, 1)

    def give_back(self, machine: int, demand: Demand, devices: Sequence[int]) -> None:
        """It holds it no longer."""
        self._move(machine, demand, devices, -1)

    def room_for(self, machine: int, demand: Demand) -> int:
        """At most so many more tasks of this demand have room there, whatever else is asked."""
        stands = self._machines[machine]
        if demand.clusters and stands.cluster not in demand.clusters:
            return 0
        if demand.zones and stands.zone not in demand.zones:
            return 0
        rooms = [
            free // amount
            for free, amount in zip(self.free[machine], asked(demand), strict=True)
            if amount
        ]
        return max(0, min(rooms)) if rooms else UNBOUNDED

    def _move(self, machine: int, demand: Demand, devices: Sequence[int], sign: int) -> None:
        free = self.free[machine]
        for column, amount in enumerate(asked(demand)):
            if amount:
                free[column] -= sign * amount
                self.used[column] += sign * amount
        for device in devices:
            self.devices[machine][device] -= sign * demand.milli_per_device


UNBOUNDED = 2**31
"""Room for a task that asks for nothing."""


def measures(amounts: Amounts) -> Measures:
    """Quantities with GPUs in thousandths."""
    cpu_milli, memory_mib, gpu, disk_mib, net_mbps = amounts
    return (cpu_milli, memory_mib, gpu * DEVICE_MILLI, disk_mib, net_mbps)


def asked(demand: Demand) -> Measures:
    """What a task takes."""
    cpu_milli, memory_mib, _, disk_mib, net_mbps = demand.asks
    return (cpu_milli, memory_mib, demand.gpu_total_milli, disk_mib, net_mbps)
