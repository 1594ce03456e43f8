"""The placement engine of production, asked by the simulation: records in, machines out.

The one file here that knows the engine. It holds no rule of placement of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread, Taint
from domain.feasibility import never_fits
from domain.fleet import MachineStanding
from domain.machine import MachineClass
from domain.reasons import Reason
from domain.resources import Resources
from domain.task import TaskSpec
from drystone.simulate.records import Amounts, Demand, MachineRow, TaskRow
from drystone.simulate.rules import constraints_of
from placement.assign import UNPLACED, assign
from placement.demand import GPU_MODEL_LABEL, Batch, Shape, shape_for
from placement.devices import as_bits, named
from placement.explain import explain
from placement.feasible import SETTLED, feasible
from placement.index import MachineId, MachineIndex
from placement.policy import DEFAULT_POLICY, POLICIES, Policy
from placement.round import ROUND_TASKS_MAX

POLICY_NAMES = tuple(POLICIES)
DEFAULT_POLICY_NAME = DEFAULT_POLICY.name
BATCH_MAX = ROUND_TASKS_MAX
"""The most tasks that production looks at in one round."""

MOMENT_BITS = 48

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Placed:
    """The engine's wish: this task (by its number) on this machine (by its number)."""

    task: int
    machine: int
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """What became of the tasks of one round: each is placed or refused."""

    placed: list[Placed]
    refused: dict[int, Reason]


class Engine:
    """The index over one fleet, and rounds on it. Tasks are numbers into the stream."""

    def __init__(
        self,
        machines: Sequence[MachineRow],
        stream: Sequence[TaskRow],
        policy: str = DEFAULT_POLICY_NAME,
        seed: int = 0,
    ) -> None:
        self._machines = machines
        self._stream = stream
        self._policy: Policy = POLICIES[policy]
        self._seed = seed
        self._index = MachineIndex(_standing(one) for one in machines)
        ids = [MachineId(one.cluster, one.id) for one in machines]
        self._slots = np.array([self._index.slot(machine) for machine in ids], dtype=np.intp)
        self._number_at = {slot: number for number, slot in enumerate(self._slots.tolist())}
        self._spread = widest(machines)
        self._shape_by_object: dict[int, Shape] = {}
        self._shape_by_meaning: dict[object, Shape] = {}
        self._classes = _classes(machines)
        self.rounds = 0

    def place(self, tasks: Sequence[int], moment: int) -> Round:
        """One round over these tasks, which stand in the order in which they are served (by band
        first). What it places holds its room until `leave`. `moment` seeds the draw among equals:
        by it and not by the count of rounds, so that a round that places nothing changes nothing.
        """
        rows = [self._stream[task] for task in tasks]
        batch = Batch.of(
            [self._shape(row.demand) for row in rows], [int(row.demand.band) for row in rows]
        )
        seed = (self._seed << MOMENT_BITS) + moment
        self.rounds += 1
        done = assign(self._index, batch, self._policy, seed)
        why = {code: explain(self._index, batch.shapes[code]).reason for code in done.waiting}
        answers = zip(
            tasks, batch.code.tolist(), done.slot.tolist(), done.devices.tolist(), strict=True
        )
        found = Round([], {})
        for task, code, slot, devices in answers:
            if slot == UNPLACED:
                found.refused[task] = why[code]
            else:
                found.placed.append(Placed(task, self._number_at[slot], named(devices)))
        return found

    def leave(self, placed: Placed) -> None:
        """The task has ended: its room is free again."""
        slot = int(self._slots[placed.machine])
        shape = self._shape(self._stream[placed.task].demand)
        self._index.give_back(slot, shape, as_bits(placed.devices))

    def observe(self, task: int, machine: int) -> None:
        """Somebody else has placed this task there: it holds room."""
        self._index.take(int(self._slots[machine]), self._shape(self._stream[task].demand))

    def impossible(self, demand: Demand) -> Reason | None:
        """The foremost reason, if no machine could hold it with nothing but reservations there."""
        asks = demand.asks._replace(gpu=demand.devices)
        spec = TaskSpec(
            team=demand.team,
            id="simulated",
            command=("true",),
            constraints=self._shape(demand).constraints,
        )
        # Past the check that a task asks for cpu and memory: traces leave out what they lack.
        spec = spec.model_copy(update={"resources": Resources(**asks._asdict())})
        lost = never_fits(spec, self._classes)
        return next(iter(lost)) if lost else None

    def could_hold(self, demand: Demand) -> Mask:
        """By machine, whether it could take one more task of this demand now."""
        everywhere = feasible(self._index, self._shape(demand), self._index.everywhere)
        mask: Mask = everywhere[self._slots]
        return mask

    def may_use(self, demand: Demand) -> Mask:
        """By machine, whether its rules (all but room and neighbours) let it run there."""
        everywhere = feasible(self._index, self._shape(demand), self._index.everywhere, SETTLED)
        mask: Mask = everywhere[self._slots]
        return mask

    def machine_id(self, machine: int) -> str:
        """As the file names it."""
        return self._machines[machine].id

    def _shape(self, demand: Demand) -> Shape:
        """One and the same for demands that ask for the same, whatever their band."""
        shape = self._shape_by_object.get(id(demand))
        if shape is None:
            constraints = constraints_of(demand, self._spread)
            key = (demand.asks, demand.gpu_milli, demand.team, constraints)
            shape = self._shape_by_meaning.get(key)
            if shape is None:
                shape = self._shape_by_meaning[key] = shape_for(
                    Resources(**demand.asks._asdict()),
                    constraints,
                    team=demand.team,
                    gpu_milli=demand.gpu_milli,
                )
            self._shape_by_object[id(demand)] = shape
        return shape


def _standing(one: MachineRow) -> MachineStanding:
    return MachineStanding(
        cluster=one.cluster,
        name=one.id,
        zone=one.zone,
        rack=one.rack,
        labels=_labels(one),
        taints=_taints(one),
        capacity=one.capacity,
        used=one.reserved,
        cordoned=one.cordoned,
        reachable=True,
    )


def _labels(one: MachineRow) -> Mapping[str, str]:
    return {**one.labels, GPU_MODEL_LABEL: one.gpu_model} if one.gpu_model else one.labels


def _taints(one: MachineRow) -> tuple[Taint, ...]:
    return tuple(Taint(key=key, value=value) for key, value in one.taints)


def _classes(machines: Iterable[MachineRow]) -> list[MachineClass]:
    """What machines could hold at most, each class once: reservations are for good."""
    found: dict[object, MachineClass] = {}
    for one in machines:
        room = tuple(a - b for a, b in zip(one.capacity, one.reserved, strict=True))
        labels = _labels(one)
        key = (one.cluster, one.zone, room, tuple(sorted(labels.items())), one.taints)
        if key not in found:
            capacity = Resources(**Amounts(*room)._asdict())
            found[key] = MachineClass(
                cluster=one.cluster,
                zone=one.zone,
                capacity=capacity,
                labels=dict(labels),
                taints=_taints(one),
            )
    return list(found.values())


def widest(machines: Sequence[MachineRow]) -> Spread:
    """Services are spread over the widest kind of place of which the fleet has more than one."""
    if len({one.zone for one in machines}) > 1:
        return Spread.ZONE
    if len({(one.cluster, one.rack) for one in machines}) > 1:
        return Spread.RACK
    return Spread.MACHINE
