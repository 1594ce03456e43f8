"""What is refused at submission: the empty fleet's best machine is too small, or barred."""

import pytest
from hypothesis import given

from domain.constraint import Constraints
from domain.feasibility import nearest_miss, never_fits
from domain.fleet import Fleet, MachineStanding
from domain.machine import MachineClass
from domain.reasons import Reason
from domain.resources import COLUMNS, Resources
from domain.task import TaskSpec
from placement.index import MachineIndex
from placement.round import place
from tests.placement.worlds import World, worlds
from tests.support.scenario import pending_task, read


def class_of(machine: MachineStanding, machines: int = 1) -> MachineClass:
    return MachineClass(
        cluster=machine.cluster,
        zone=machine.zone,
        capacity=Resources(
            **dict(zip(COLUMNS, machine.capacity, strict=True)), extra=dict(machine.capacity_extra)
        ),
        labels=dict(machine.labels),
        taints=machine.taints,
        machines=machines,
    )


CLASSES = [
    class_of(machine, machines)
    for machine, machines in zip(
        read("""
            machine small  cpu=8 memory=64Gi zone=a label:disk=hdd
            machine large  cpu=16 memory=8Gi zone=b gpu=2
            machine apart  cpu=64 memory=64Gi zone=c taint:dedicated=ml
        """).fleet.machines,
        (10, 2, 5),
        strict=True,
    )
]


def a_spec(resources: dict[str, object], **constraints: object) -> TaskSpec:
    return TaskSpec(
        id="t",
        command=("true",),
        resources=Resources.model_validate({"cpu": 1, "memory": "1Gi", **resources}),
        constraints=Constraints.model_validate(constraints),
    )


@pytest.mark.parametrize(
    ("resources", "constraints", "lost", "detail"),
    [
        (
            {"cpu": 20},
            {},
            {Reason.NO_ROOM_CPU: 12, Reason.TAINTED: 5},
            "largest cpu_milli 16000 < 20000",
        ),
        (
            {"cpu": 12, "memory": "12Gi"},
            {},
            {Reason.NO_ROOM_CPU: 10, Reason.TAINTED: 5, Reason.NO_ROOM_MEMORY: 2},
            "no machine has enough of all of it at once",
        ),
        (
            {"extra": {"fpga": 1}},
            {"zones": ["a"]},
            {Reason.NO_ROOM_EXTRA: 10, Reason.OTHER_ZONE: 7},
            "largest fpga 0 < 1",
        ),
        ({}, {"clusters": ["c9"]}, {Reason.OTHER_CLUSTER: 17}, "no machine in cluster c9"),
        ({}, {"zones": ["y", "z"]}, {Reason.OTHER_ZONE: 17}, "no machine in zone y or z"),
        (
            {},
            {"labels": [{"key": "disk", "values": ["ssd"]}]},
            {Reason.LABEL_MISSING: 17},
            "no machine has all the labels asked for",
        ),
        (
            {},
            {"zones": ["c"]},
            {Reason.OTHER_ZONE: 12, Reason.TAINTED: 5},
            "every machine left has a taint that is not tolerated",
        ),
    ],
)
def test_a_task_that_no_machine_could_hold_is_told_why(
    resources: dict[str, object],
    constraints: dict[str, object],
    lost: dict[Reason, int],
    detail: str,
) -> None:
    spec = a_spec(resources, **constraints)
    assert never_fits(spec, CLASSES) == lost
    assert nearest_miss(spec, CLASSES) == detail


def test_one_machine_that_could_is_enough() -> None:
    assert never_fits(a_spec({"cpu": 12, "memory": "8Gi", "gpu": 2}), CLASSES) is None
    assert nearest_miss(a_spec({"cpu": 1}), CLASSES) == ""
    tolerant = a_spec({"cpu": 64, "memory": "64Gi"}, tolerations=[{"key": "dedicated"}])
    assert never_fits(tolerant, CLASSES) is None


def test_an_empty_fleet_refuses_nothing() -> None:
    assert never_fits(a_spec({"cpu": 1_000}), []) is None


@given(worlds())
def test_what_never_fits_is_not_placed_even_on_idle_machines(world: World) -> None:
    idle = [
        MachineStanding(
            cluster=m.cluster,
            name=m.name,
            zone=m.zone,
            rack=m.rack,
            labels=m.labels,
            taints=m.taints,
            capacity=m.capacity,
            used=(0, 0, 0, 0, 0),
            cordoned=False,
            reachable=True,
            capacity_extra=m.capacity_extra,
        )
        for m in world.fleet.machines
    ]
    classes = [class_of(machine) for machine in idle]
    fleet = Fleet(machines=tuple(idle), clusters={"c1": True, "c2": True}, revision=1)
    for task in world.pending:
        index = MachineIndex()
        index.replace(fleet)
        result = place(index, [pending_task(task.spec)], seed=1)
        lost = never_fits(task.spec, classes)
        if task.spec.constraints.over_domains:
            # Of racks and of neighbours classes say nothing.
            assert not result.placed or lost is None
            continue
        assert bool(result.placed) == (lost is None and bool(classes))
        if lost is not None:
            assert result.verdicts[task.key].lost == lost
            assert nearest_miss(task.spec, classes)
