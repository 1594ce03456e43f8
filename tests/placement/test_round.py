"""Rounds as tables: order, filters, scores, ties, and what is said of those that wait."""

from datetime import timedelta

import numpy as np
import pytest

from domain.reasons import Reason
from domain.resources import Resources
from domain.task import TaskSpec
from placement.index import MachineIndex
from placement.round import place
from tests.support.scenario import START, check_round, pending_task, read

# One line of machine and task each, where nothing but the filter named stands in the way.
ONLY_BLOCKERS = {
    Reason.NO_ROOM_CPU: ("cpu=1", "cpu=2", "largest free cpu_milli 999 < 2000"),
    Reason.NO_ROOM_MEMORY: ("memory=1Gi", "memory=2Gi", "largest free memory_mib 1023 < 2048"),
    Reason.NO_ROOM_GPU: ("gpu=1", "gpu=2", "largest free gpu 1 < 2"),
    Reason.NO_ROOM_DISK: ("disk=1Gi", "disk=2Gi", "largest free disk_mib 1024 < 2048"),
    Reason.NO_ROOM_NET: ("net=100M", "net=1G", "largest free net_mbps 100 < 1000"),
    Reason.NO_ROOM_EXTRA: ("fpga=1", "fpga=2", "largest free fpga 1 < 2"),
    Reason.OTHER_CLUSTER: ("", "cluster=c2", "no machine in cluster c2"),
    Reason.OTHER_ZONE: ("zone=a", "zone=b|c", "no machine in zone b or c"),
    Reason.LABEL_MISSING: ("label:disk=hdd", "label:disk=ssd", "no machine has label disk = ssd"),
    Reason.TAINTED: ("taint:dedicated=ml", "", "taint dedicated=ml is not tolerated"),
    Reason.UNREACHABLE: ("silent", "", "machines that would do but are silent: 1"),
    Reason.CORDONED: ("cordoned", "", "machines that would do but are cordoned: 1"),
    Reason.COOLING_DOWN: ("", "cooling=c1", "refused too often lately by cluster c1"),
    Reason.ANTI_AFFINITY: ("", "apart=db", "kept apart from service db of team red"),
    Reason.TOO_MANY_PER_MACHINE: ("", "service=db max=1", "at most 1 of service db on a machine"),
    Reason.TOO_MANY_PER_RACK: (
        "rack=r1",
        "service=db limit:rack=1",
        "at most 1 of service db in a rack",
    ),
    Reason.TOO_MANY_PER_ZONE: (
        "zone=a",
        "service=db limit:zone=1",
        "at most 1 of service db in a zone",
    ),
    Reason.TOO_MANY_PER_VALUE: (
        "label:disk=hdd",
        "service=db limit:label:disk=1",
        "at most 1 of service db in a value of label disk",
    ),
    Reason.UNEVEN: (
        "rack=r1 zone=a\n machine m2 rack=r2 cordoned",
        "service=db even:rack=1",
        "a rack would have more than 1 of service db beyond the one that has fewest",
    ),
    Reason.NOT_NEAR: (
        "zone=a",
        "near=web@zone",
        "no task of service web of team red in the same zone",
    ),
    Reason.NO_SUCH_DOMAIN: ("", "service=web limit:rack=1", "machines in no rack"),
}
# What a machine or a round as a whole cannot say.
SAID_OF_MACHINES = [
    reason
    for reason in Reason
    if list(Reason).index(reason) < list(Reason).index(Reason.NO_MACHINES_YET)
]


def test_every_reason_of_a_machine_is_in_the_table() -> None:
    assert set(ONLY_BLOCKERS) == set(SAID_OF_MACHINES)


@pytest.mark.parametrize("reason", ONLY_BLOCKERS)
def test_each_filter_as_the_only_blocker_gives_its_own_reason_l99(reason: Reason) -> None:
    machine, task, detail = ONLY_BLOCKERS[reason]
    also = "cordoned=1" if "m2" in machine else ""
    result = check_round(f"""
        machine m1  {machine}
        running r1  service=db  cpu=1m memory=1Mi  on m1
        pending t1  cpu=500m memory=1Mi {task}
        expect  t1  waits {reason}=1 {also} "{detail}"
    """)
    assert result.verdicts["red/t1"].reason is reason


def test_a_task_fits_when_the_blocker_is_gone() -> None:
    check_round(
        """
        machine m1  cpu=2 memory=2Gi gpu=2 disk=2Gi net=1G fpga=2 zone=b \
                    label:disk=ssd taint:dedicated=ml
        running r1  service=web cpu=500m on m1
        pending t1  cpu=1500m memory=1Gi gpu=2 disk=2Gi net=1G fpga=2 cluster=c1 zone=b \
                    label:disk=ssd|nvme tolerate:dedicated=ml service=db max=1 apart=db
        expect  t1  -> m1
    """
    )


def test_an_empty_fleet_says_that_no_machine_has_come_yet() -> None:
    result = check_round("""
        pending t1
        expect  t1  waits "no machine has registered yet"
    """)
    assert result.verdicts["red/t1"].reason is Reason.NO_MACHINES_YET


def test_a_resource_that_no_machine_has_is_named() -> None:
    check_round("""
        machine m1
        pending t1  quantum=1
        expect  t1  waits no_room_extra=1 "no machine has quantum"
    """)


def test_a_cluster_is_judged_by_its_largest_machine_not_by_its_sum_l01() -> None:
    small = "\n".join(f"machine a{n} cpu=8 cluster=ca" for n in range(10))
    large = "\n".join(f"machine b{n} cpu=16 cluster=cb" for n in range(2))
    check_round(f"""
        {small}
        {large}
        pending anywhere  cpu=12
        pending in-a      cpu=12  cluster=ca
        expect  anywhere  -> b0|b1
        expect  in-a      waits no_room_cpu=10 other_cluster=2 "largest free cpu_milli 8000 < 12000"
    """)


def test_blocked_large_tasks_do_not_hold_up_small_ones_behind_them_l15() -> None:
    check_round("""
        machine m1  cpu=8 gpu=4
        running r1  gpu=4 cpu=1 on m1
        pending g1  gpu=4
        pending g2  gpu=4
        pending g3  gpu=4
        pending c1
        pending c2
        expect  g1  waits no_room_gpu=1 "largest free gpu 0 < 4"
        expect  g2  waits no_room_gpu=1
        expect  g3  waits no_room_gpu=1
        expect  c1  -> m1
        expect  c2  -> m1
    """)


def test_a_verdict_counts_all_causes_and_puts_the_nearest_first_l101() -> None:
    result = check_round(
        """
        machine m1  zone=b
        machine m2  zone=b
        machine m3  zone=b
        machine m4  zone=a taint:dedicated=ml
        machine m5  zone=a cordoned
        machine m6  zone=a silent
        machine m7  zone=a cpu=1
        machine m8  zone=a cpu=2
        pending t1  zone=a cpu=3
        expect  t1  waits other_zone=3 tainted=1 cordoned=1 unreachable=1 no_room_cpu=2 \
                    "largest free cpu_milli 2000 < 3000"
    """
    )
    verdict = result.verdicts["red/t1"]
    assert verdict.reason is Reason.NO_ROOM_CPU
    assert verdict.top(2) == [(Reason.OTHER_ZONE, 3), (Reason.NO_ROOM_CPU, 2)]
    assert len(verdict.top()) == 3


def test_the_more_important_band_goes_first_then_who_waits_longest() -> None:
    check_round("""
        machine m1  cpu=2
        pending old     cpu=1 band=LOW
        pending first   cpu=1
        pending second  cpu=1
        pending urgent  cpu=1 band=CRITICAL
        expect  urgent  -> m1
        expect  first   -> m1
        expect  second  waits no_room_cpu=1
        expect  old     waits no_room_cpu=1
    """)


def test_max_per_machine_counts_tasks_of_the_same_round_and_of_one_team() -> None:
    check_round("""
        machine m1
        machine m2
        pending t1  service=web max=1
        pending t2  service=web max=1
        pending t3  service=web max=1
        pending t4  service=web max=1 team=blue
        expect  t1  -> m1|m2
        expect  t2  -> m1|m2
        expect  t3  waits too_many_per_machine=2
        expect  t4  -> m1|m2
    """)


def test_anti_affinity_binds_both_sides_whoever_came_first() -> None:
    check_round("""
        machine m1
        machine m2
        running r1  service=db apart=web  on m1
        running r2  service=batch  on m2
        pending t1  service=web
        pending t2  service=web apart=batch
        expect  t1  -> m2
        expect  t2  waits anti_affinity=2 "kept apart"
    """)


def test_spread_fills_the_least_used_zone_among_those_with_room() -> None:
    machines = "\n".join(f"machine {zone}1 cpu=16 memory=64Gi zone={zone}" for zone in "abc")
    tasks = "\n".join(f"pending t{n} service=web spread=zone" for n in range(6))
    expectations = "\n".join(f"expect t{n} -> b1|c1" for n in range(6))
    result = check_round(f"""
        {machines}
        running full  cpu=16 memory=64Gi  on a1
        running w1    service=web  on b1
        running w2    service=web  on b1
        {tasks}
        {expectations}
    """)
    where = [one.machine for one in result.placed]
    assert where[:2] == ["c1", "c1"]
    assert (where.count("b1"), where.count("c1")) == (2, 4)


@pytest.mark.parametrize("over", ["rack", "machine"])
def test_spread_over_racks_and_machines(over: str) -> None:
    machines = "\n".join(f"machine m{n} cpu=8 rack=r{n % 3} zone=z" for n in range(6))
    tasks = "\n".join(f"pending t{n} service=web spread={over}" for n in range(6))
    expectations = "\n".join(f"expect t{n} -> m0|m1|m2|m3|m4|m5" for n in range(6))
    result = check_round(f"{machines}\n{tasks}\n{expectations}")
    machines_used = [one.machine for one in result.placed]
    racks_used = [int(machine[1:]) % 3 for machine in machines_used]
    assert sorted(racks_used) == [0, 0, 1, 1, 2, 2]
    assert over == "rack" or len(set(machines_used)) == 6


def test_packing_matches_the_task_to_the_machine_of_the_same_proportions() -> None:
    check_round("""
        machine lean  cpu=16 memory=16Gi
        machine fat   cpu=16 memory=128Gi
        pending wide  cpu=2 memory=16Gi
        pending thin  cpu=2 memory=2Gi
        expect  wide  -> fat
        expect  thin  -> lean
    """)


def test_packing_keeps_tasks_without_gpu_off_idle_gpus() -> None:
    check_round("""
        machine plain    cpu=16 memory=64Gi
        machine devices  cpu=16 memory=64Gi gpu=4
        pending t1  cpu=1 memory=4Gi
        pending t2  cpu=1 memory=4Gi gpu=1
        expect  t1  -> plain
        expect  t2  -> devices
    """)


def test_policies_differ_as_their_names_say() -> None:
    world = """
        machine used   cpu=16 memory=16Gi
        machine empty  cpu=16 memory=16Gi
        running r1  cpu=4 memory=4Gi  on used
        pending t1  cpu=2 memory=2Gi
        expect  t1  -> {}
    """
    check_round(world.format("used"), policy="pack")
    check_round(world.format("used"), policy="best_fit")
    check_round(world.format("empty"), policy="spread")


def test_ties_are_broken_by_the_seed_and_every_machine_has_its_chance() -> None:
    machines = "\n".join(f"machine m{n}" for n in range(4))
    world = f"{machines}\npending t1\nexpect t1 -> m0|m1|m2|m3"
    first = [check_round(world, seed=seed).placed for seed in range(40)]
    assert [check_round(world, seed=seed).placed for seed in range(40)] == first
    assert {placed[0].machine for placed in first} == {"m0", "m1", "m2", "m3"}


def test_a_closed_cluster_is_unreachable() -> None:
    check_round("""
        machine m1  cluster=c1
        machine m2  cluster=c2
        cluster c2  closed
        pending t1  cluster=c2
        pending t2
        expect  t1  waits unreachable=1 other_cluster=1 "are silent"
        expect  t2  -> m1
    """)


def test_tasks_beyond_the_bound_of_a_round_are_told_so() -> None:
    world = read("machine m1 cpu=8\npending t1\npending t2\npending t3")
    result = place(MachineIndex(world.fleet.machines), world.pending, seed=1, tasks_max=2)
    assert [one.key for one in result.placed] == ["red/t1", "red/t2"]
    assert result.verdicts["red/t3"].reason is Reason.NOT_YET_CONSIDERED


def test_a_backlog_of_one_full_shape_is_scanned_once_and_explained_once() -> None:
    spec = TaskSpec(id="t", command=("true",), resources=Resources(cpu_milli=9_000, memory_mib=1))
    pending = [
        pending_task(
            spec.model_copy(update={"id": f"t{n}"}), enqueued_at=START + timedelta(seconds=n)
        )
        for n in range(500)
    ]
    index = MachineIndex(read("machine m1\nmachine m2").fleet.machines)
    before = index.free.copy()
    result = place(index, pending, seed=1)
    assert len({id(verdict) for verdict in result.verdicts.values()}) == 1
    assert len(result.verdicts) == 500
    assert np.array_equal(index.free, before)


def test_the_nearest_miss_names_the_machine_that_lacks_least() -> None:
    result = check_round("""
        machine m1  cpu=2 memory=64Gi
        machine m2  cpu=7 memory=7Gi
        machine m3  cpu=8 memory=6Gi
        machine m4  cpu=16 memory=7Gi taint:old=yes
        pending t1  cpu=8 memory=8Gi
        expect  t1  waits tainted=1 no_room_cpu=2 no_room_memory=1 "largest free cpu_milli 7000"
    """)
    detail = result.verdicts["red/t1"].detail
    assert detail.endswith("; nearest: c1/m2 lacks 1000 cpu_milli and 1024 memory_mib")


def test_five_causes_at_once_are_told_with_counts_and_the_nearest_fix_l101() -> None:
    result = check_round("""
        machine m1  cpu=2 zone=a
        machine m2  cpu=3 zone=a
        machine m3  cpu=8 zone=b
        machine m4  cpu=8 zone=a cordoned
        machine m5  cpu=8 zone=a silent
        machine m6  cpu=8 zone=a taint:old=yes
        pending t1  cpu=4 memory=1Gi zone=a
        expect  t1  waits no_room_cpu=2 other_zone=1 cordoned=1 unreachable=1 tainted=1
    """)
    verdict = result.verdicts["red/t1"]
    assert verdict.top()[0] == (Reason.NO_ROOM_CPU, 2)
    assert len(verdict.top()) == 3
    assert (
        verdict.detail == "largest free cpu_milli 3000 < 4000; nearest: c1/m2 lacks 1000 cpu_milli"
    )
