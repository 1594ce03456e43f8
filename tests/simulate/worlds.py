"""Small fleets and streams, valid by default, and a plain oracle: did anybody wait needlessly?"""

from collections.abc import Sequence

from drystone.simulate.check import PLACED
from drystone.simulate.records import (
    DEVICE_MILLI,
    Amounts,
    Demand,
    MachineRow,
    Placement,
    TaskRow,
)
from drystone.simulate.run import Ran, Setting, checked, simulate


def a_machine(name="m", *, cpu=4_000, memory=8_192, gpu=0, **differs) -> MachineRow:
    return MachineRow(id=name, capacity=Amounts(cpu, memory, gpu), **differs)


def a_demand(*, cpu=1_000, memory=1_024, gpu=0, **differs) -> Demand:
    return Demand(asks=Amounts(cpu, memory, gpu), **differs)


def ran(machines, stream, **setting) -> Ran:
    """A run whose every placement has been checked."""
    done = simulate(machines, stream, Setting(**setting), _no_time)
    found = checked(machines, stream, done)
    assert found.described == []
    return done


def where(done: Ran) -> dict[str, str]:
    """By task, its machine."""
    return {line.task_id: line.machine_id for line in done.result.placements}


def placed_s(done: Ran) -> dict[str, float | None]:
    """By task, when it was placed."""
    return {
        line.task_id: None if line.placed_ms is None else line.placed_ms / 1_000
        for line in done.result.placements
    }


def waited_needlessly(
    machines: Sequence[MachineRow], stream: Sequence[TaskRow], lines: Sequence[Placement]
) -> list[str]:
    """Tasks that waited past a moment at the end of which some machine had room for them.

    Quadratic and plain; looks at capacity, devices and zones, at every moment when anything moves.
    """
    row_of = {row.id: row for row in stream}
    moments = {_known(row.submit_ms) for row in stream}
    moments |= {one for line in lines for one in (line.placed_ms, line.ended_ms) if one is not None}
    wrong = []
    for now in sorted(moments):
        for line in lines:
            row = row_of[line.task_id]
            if _known(row.submit_ms) > now or (
                line.placed_ms is not None and line.placed_ms <= now
            ):
                continue
            wrong += [
                f"{row.id} waits at {now} though {machine.id} has room"
                for machine in machines
                if _has_room(machine, _there(machine, lines, row_of, now), row.demand)
            ]
    return wrong


def _there(machine, lines, row_of, now) -> list[tuple[Demand, tuple[int, ...]]]:
    """Who is on a machine once everything of that moment has happened."""
    return [
        (row_of[line.task_id].demand, line.gpu_devices)
        for line in lines
        if line.outcome in PLACED
        and line.machine_id == machine.id
        and line.placed_ms <= now
        and (line.ended_ms is None or line.ended_ms > now)
    ]


def _known(at_ms: int | None) -> int:
    assert at_ms is not None
    return at_ms


def _has_room(machine, here, demand) -> bool:
    if demand.zones and machine.zone not in demand.zones:
        return False
    for column in (0, 1):
        used = sum(other.asks[column] for other, _ in here) + machine.reserved[column]
        if demand.asks[column] and used + demand.asks[column] > machine.capacity[column]:
            return False
    devices = [DEVICE_MILLI] * machine.capacity.gpu
    for other, its in here:
        for device in its:
            devices[device] -= other.milli_per_device
    return sum(free >= demand.milli_per_device for free in devices) >= demand.devices


def _no_time() -> float:
    return 0.0
