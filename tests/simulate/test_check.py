"""The checker finds every kind of wrong placement, and nothing wrong with right ones."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from drystone.simulate.check import check, spread_skew
from drystone.simulate.records import Amounts, Outcome, Placement, TaskRow
from tests.simulate.worlds import a_demand, a_machine

MACHINES = [
    a_machine("a", cpu=4_000, gpu=2, gpu_model="T4", zone="z1", labels={"disk": "ssd"}),
    a_machine("b", cpu=4_000, zone="z2", taints=(("own", "ml"),)),
    a_machine("c", cpu=4_000, cordoned=True, cluster="other"),
]
SHARE = a_demand(cpu=10, gpu_milli=600, gpu_models=("T4",))
LABELLED = a_demand(cpu=3_000, labels=(("disk", "ssd"),), zones=("z1",), clusters=("sim",))
TOLERANT = a_demand(cpu=3_000, tolerations=(("own", None),))
CAPPED = a_demand(cpu=10, service="web", max_per_machine=1)
STREAM = [
    TaskRow("share-1", SHARE, 0, None),
    TaskRow("share-2", SHARE, 0, None),
    TaskRow("labelled", LABELLED, 1_000, 2_000),
    TaskRow("tolerant", TOLERANT, 1_000, 2_000),
    TaskRow("next", LABELLED, 1_000, 2_000),
    TaskRow("web", CAPPED, 0, None),
    TaskRow("gone", TOLERANT, 1_000, None),
]
RIGHT = {
    "share-1": Placement(
        task_id="share-1", attempt=1, machine_id="a", gpu_devices=(0,), placed_ms=0,
        outcome=Outcome.RUNNING,
    ),
    "share-2": Placement(
        task_id="share-2", attempt=1, machine_id="a", gpu_devices=(1,), placed_ms=0,
        outcome=Outcome.RUNNING,
    ),
    "labelled": Placement(
        task_id="labelled", attempt=1, machine_id="a", placed_ms=1_000, ended_ms=3_000,
        outcome=Outcome.SUCCEEDED,
    ),
    "tolerant": Placement(
        task_id="tolerant", attempt=1, machine_id="b", placed_ms=1_000, ended_ms=3_000,
        outcome=Outcome.SUCCEEDED,
    ),
    "next": Placement(
        task_id="next", attempt=1, machine_id="a", placed_ms=3_000, ended_ms=5_000,
        outcome=Outcome.SUCCEEDED,
    ),
    "web": Placement(
        task_id="web", attempt=1, machine_id="a", placed_ms=0, outcome=Outcome.RUNNING
    ),
    "gone": Placement(
        task_id="gone", attempt=1, machine_id="b", placed_ms=3_000, outcome=Outcome.RUNNING
    ),
}  # fmt: skip


def described(lines: Iterable[Placement], stream: Sequence[TaskRow] = STREAM) -> list[str]:
    return check(MACHINES, stream, lines).described


def test_right_placements_are_right():
    found = check(MACHINES, STREAM, RIGHT.values())
    assert (found.placements, found.violations, found.described) == (7, 0, [])


@pytest.mark.parametrize(
    ("task", "differs", "says"),
    [
        ("share-2", {"gpu_devices": (0,)}, "device 0 is overfull"),
        ("share-2", {"gpu_devices": (2,)}, "no such device"),
        ("share-2", {"gpu_devices": ()}, "asks for 1"),
        ("share-2", {"gpu_devices": (0, 1)}, "asks for 1"),
        ("share-2", {"machine_id": "nowhere"}, "no machine is called 'nowhere'"),
        ("share-2", {"machine_id": "b"}, "has GPUs ''"),
        ("labelled", {"machine_id": "b"}, "is in zone 'z2'"),
        ("labelled", {"machine_id": "c"}, "is cordoned"),
        ("next", {"placed_ms": 2_000, "ended_ms": 4_000}, "cpu_milli 6030 > 4000"),
        ("next", {"ended_ms": 4_000}, "does not end after its duration"),
        ("next", {"outcome": Outcome.RUNNING}, "runs on, and yet has an end"),
        ("next", {"placed_ms": None}, "is placed at no time"),
        ("gone", {"outcome": Outcome.SUCCEEDED}, "does not end after its duration"),
        ("web", {"machine_id": "b"}, "has taint own = 'ml'"),
        ("tolerant", {"placed_ms": 0, "ended_ms": 2_000}, "is placed before it has come"),
        ("share-1", {"task_id": "stranger"}, "stranger: is no task of the stream"),
        ("share-1", {"task_id": "stranger"}, "share-1: has no line"),
        (
            "web",
            {"outcome": Outcome.UNPLACED, "machine_id": "", "placed_ms": None},
            "web: is unplaced, and yet a has room for it",
        ),
    ],
)
def test_a_wrong_line_is_found(task, differs, says):
    lines = [replace(line, **differs) if name == task else line for name, line in RIGHT.items()]
    if differs.get("placed_ms", 0) is None and "outcome" not in differs:
        lines = [line for line in lines if line.placed_ms is not None] + [
            replace(RIGHT[task], placed_ms=None, machine_id="", ended_ms=None)
        ]
    assert any(says in what for what in described(lines)), described(lines)


def test_two_of_a_capped_service_on_one_machine_are_found():
    stream = [*STREAM, TaskRow("web-2", CAPPED, 0, None)]
    lines = [*RIGHT.values(), replace(RIGHT["web"], task_id="web-2")]
    assert described(lines, stream) == ["web-2 on a: too many of 'web'"]


def test_attempts_that_overlap_are_found_and_ones_after_each_other_are_not():
    first = replace(RIGHT["gone"], outcome=Outcome.PREEMPTED, ended_ms=3_500)
    second = replace(RIGHT["gone"], attempt=2, placed_ms=3_500)
    others = [line for name, line in RIGHT.items() if name != "gone"]
    assert described([*others, first, second]) == []
    early = replace(second, placed_ms=3_400)
    assert "gone: attempts 1 and 2 overlap" in described([*others, first, early])
    twice = replace(RIGHT["gone"], attempt=2)
    assert "gone: attempts 1 and 2 overlap" in described([*others, RIGHT["gone"], twice])


def test_reservations_count_as_used():
    machines = [replace(MACHINES[1], reserved=Amounts(cpu_milli=2_000)), MACHINES[0], MACHINES[2]]
    found = check(machines, STREAM, RIGHT.values()).described
    assert "tolerant on b: cpu_milli 5000 > 4000" in found


def test_the_skew_of_a_service_is_told():
    stream = [TaskRow(f"t{n}", a_demand(service="web")) for n in range(3)]
    lines = [
        Placement(task_id=f"t{n}", attempt=1, machine_id=m, placed_ms=0, outcome=Outcome.RUNNING)
        for n, m in enumerate("aab")
    ]
    assert spread_skew(MACHINES[:2], stream, lines) == {"web": 1}
