"""Rules over racks, zones and values of a label, between tasks of one batch and those there."""

import pytest
from pydantic import ValidationError

from domain.constraint import Constraints, Limit
from domain.fleet import Fleet, MachineStanding
from domain.misfit import told
from domain.reasons import PREEMPTION_MAY_HELP, Reason
from domain.task import SubmitTask, TaskSpec
from placement.assign import UNPLACED, assign
from placement.demand import Batch, shape_of
from placement.index import MachineIndex
from placement.round import place
from placement.wide import EXACT_TASKS_MAX, SAMPLE
from tests.support.scenario import check_round, read

RACKS = """
    machine a1  zone=a rack=r1 cpu=4 label:disk=ssd
    machine a2  zone=a rack=r2 cpu=4 label:disk=hdd
    machine b1  zone=b rack=r1 cpu=4 label:disk=ssd
    machine b2  zone=b rack=r2 cpu=4 label:disk=nvme
"""


def test_a_task_goes_near_a_service_that_is_there() -> None:
    check_round(
        RACKS
        + """
        running r1  service=db cpu=4 on b1
        pending t1  near=db@zone
        expect  t1  -> b2
        pending t2  near=db@zone team=blue
        expect  t2  waits not_near=3 no_room_cpu=1 "no task of service db of team blue"
    """
    )


def test_a_task_is_near_one_of_its_own_batch_whichever_stands_first() -> None:
    check_round(
        RACKS
        + """
        pending t1  near=db@rack cpu=1
        pending t2  service=db label:disk=nvme cpu=1
        expect  t1  -> b2
        expect  t2  -> b2
    """
    )


def test_a_less_important_task_may_let_in_one_that_wants_to_be_near_it() -> None:
    check_round(
        RACKS
        + """
        pending t1  near=db@rack band=HIGH cpu=1
        pending t2  service=db label:disk=nvme cpu=1 limit:zone=5
        expect  t1  -> b2
        expect  t2  -> b2
    """
    )


def test_a_service_near_itself_begins_somewhere_and_stays_together() -> None:
    world = read(
        RACKS + "\n".join(f"pending t{n}  service=ring near=ring@rack cpu=1500m" for n in range(3))
    )
    index = MachineIndex(world.fleet.machines)
    result = place(index, world.pending)
    assert len({one.machine for one in result.placed}) == 1
    assert [one.reason for one in result.verdicts.values()] == [Reason.NOT_NEAR]


@pytest.mark.parametrize("first", ["t1", "t2"])
def test_tasks_kept_apart_share_no_zone_whichever_comes_first(first: str) -> None:
    lines = {
        "t1": "pending t1  service=web apart=db@zone cpu=1",
        "t2": "pending t2  service=db cpu=1",
    }
    names = [first, *(lines.keys() - {first})]
    world = read(RACKS + "\n".join(f"{lines[name]} band={b}" for name, b in
                                   zip(names, ("HIGH", "LOW"), strict=True)))  # fmt: skip
    result = place(MachineIndex(world.fleet.machines), world.pending)
    assert len({one.machine[0] for one in result.placed}) == 2, "one in each zone"


def test_whoever_shuns_a_service_in_its_zone_keeps_it_off_the_whole_zone() -> None:
    check_round(
        RACKS
        + """
        running r1  service=web apart=db@zone cpu=1 on a1
        pending t1  service=db zone=a cpu=1
        pending t2  service=db cpu=4
        pending t3  service=db cpu=4
        pending t4  service=db cpu=1
        expect  t1  waits anti_affinity=2 other_zone=2 "kept apart by tasks that shun service db"
        expect  t2  -> b1|b2
        expect  t3  -> b1|b2
        expect  t4  waits anti_affinity=2 no_room_cpu=2 "kept apart by tasks"
    """
    )


def test_tasks_of_one_batch_count_each_other_in_a_rack() -> None:
    check_round(
        RACKS
        + """
        running r1  service=db cpu=1 on a1
        pending t1  service=db limit:rack=1 cpu=1 zone=a
        pending t2  service=db limit:rack=1 cpu=1 zone=a
        expect  t1  -> a2
        expect  t2  waits too_many_per_rack=2 other_zone=2 "at most 1 of service db in a rack"
    """
    )


def test_every_task_has_a_value_of_its_own() -> None:
    check_round(
        RACKS
        + "".join(f"pending t{n} service=db limit:label:disk=1 cpu=1\n" for n in range(4))
        + """
        expect t0  -> a1|a2|b1|b2
        expect t1  -> a1|a2|b1|b2
        expect t2  -> a1|a2|b1|b2
        expect t3  waits too_many_per_value=4 "at most 1 of service db in a value of label disk"
    """
    )


def test_zones_fill_evenly_within_a_batch() -> None:
    world = read(RACKS + "".join(f"pending t{n} service=db even:zone=1 cpu=4\n" for n in range(3)))
    result = place(MachineIndex(world.fleet.machines), world.pending)
    zones = sorted(one.machine[0] for one in result.placed)
    assert zones in (["a", "a", "b"], ["a", "b", "b"])


def test_a_zone_in_which_nothing_may_start_now_holds_the_others_back() -> None:
    check_round("""
        machine a1  zone=a cpu=4
        machine b1  zone=b cpu=4 cordoned
        machine c1  zone=c cpu=4 label:old=yes
        machine n1  cpu=4
        pending t1  service=db even:zone=1 label:old!? cpu=1
        pending t2  service=db even:zone=1 label:old!? cpu=1
        expect  t1  -> a1
        expect  t2  waits uneven=1 cordoned=1 label_missing=1 no_such_domain=1 "a zone would have"
    """)


def test_fewer_domains_than_wanted_count_as_if_one_were_empty() -> None:
    spec = TaskSpec.model_validate(
        {
            "team": "red",
            "id": "t",
            "command": ["true"],
            "constraints": {
                "service": "db",
                "even": [{"over": "zone", "max_skew": 1, "min_domains": 3}],
            },
        }
    )
    index = MachineIndex(read(RACKS).fleet.machines)
    done = assign(index, Batch.of([shape_of(spec)] * 3), seed=1)
    assert (done.slot == UNPLACED).tolist() == [False, False, True]


def test_a_wish_moves_a_task_and_keeps_it_from_nowhere() -> None:
    check_round(
        RACKS
        + """
        running r1  service=db cpu=2500m on b2
        pending t1  prefer=db@rack cpu=1
        pending t2  prefer=db@rack cpu=1
        expect  t1  -> b2
        expect  t2  -> a1|a2|b1
        pending t3  service=db evenly:zone=1 cpu=1
        expect  t3  -> a1|a2
    """
    )


def test_more_tasks_than_are_placed_exactly_keep_their_rules() -> None:
    machines = tuple(
        MachineStanding(
            cluster="c1", name=f"m{n}", zone="a", rack=f"r{n % 40}", labels={}, taints=(),
            capacity=(4_000, 4_096, 0, 0, 0), used=(0, 0, 0, 0, 0), cordoned=False, reachable=True,
        )
        for n in range(2 * SAMPLE)
    )  # fmt: skip
    index = MachineIndex()
    index.replace(Fleet(machines=machines, clusters={"c1": True}, revision=1))
    rules = Constraints(service="db", limits=(Limit(over="rack"),))
    spec = TaskSpec(team="red", id="t", command=("true",), constraints=rules)
    tasks = 45
    assert tasks > EXACT_TASKS_MAX
    done = assign(index, Batch.of([shape_of(spec)] * tasks), seed=3)
    racks = [index.rack[slot] for slot in done.slot.tolist() if slot != UNPLACED]
    assert len(racks) == len(set(racks)) == 40


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"limits": [{"over": "rack"}]}, "limits needs service"),
        ({"even": [{"over": "zone"}]}, "even needs service"),
        (
            {"service": "a", "limits": [{"over": "row"}]},
            "must be machine, rack, zone or label:NAME",
        ),
        ({"service": "a", "limits": [{"over": "machine"}]}, "is written with max_per_machine"),
        ({"apart": [{"service": "a", "over": "machine"}]}, "is written with anti_affinity"),
        ({"service": "a", "limits": [{"over": "rack", "tasks": 0}]}, "must be at least 1, not 0"),
        ({"near": [{"service": "a"}] * 9}, "must have at most 8 entries"),
    ],
)
def test_rules_that_cannot_be_asked_are_refused_in_words(
    rules: dict[str, object], says: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        SubmitTask.model_validate({"id": "a", "command": ["true"], "constraints": rules})
    assert says in told(caught.value)


def test_only_what_other_tasks_take_would_come_back_if_they_yielded() -> None:
    said = {Reason.UNEVEN, Reason.NOT_NEAR, Reason.NO_SUCH_DOMAIN, Reason.TOO_MANY_PER_RACK}
    assert said & PREEMPTION_MAY_HELP == {Reason.UNEVEN, Reason.TOO_MANY_PER_RACK}
