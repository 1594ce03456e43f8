"""The index as a cache: states replace states, and what is taken comes back to the bit."""

from dataclasses import replace

import numpy as np
import pytest

from domain.constraint import Constraints, LabelTerm, Operator, Spread
from domain.fleet import Fleet, MachineStanding
from domain.resources import Resources
from domain.task import TaskSpec
from placement.assign import assign
from placement.demand import NO_RULE, Batch, shape_of
from placement.feasible import feasible, meets
from placement.hands import barred, one_pool
from placement.index import MachineId, MachineIndex
from placement.neighbours import Presence
from placement.pairs import RARE_MACHINES_MAX
from placement.score import spread
from placement.spreads import SpreadCounts
from tests.support.scenario import read

M1, M2 = MachineId("c1", "m1"), MachineId("c1", "m2")


def a_spec(**fields: object) -> TaskSpec:
    return TaskSpec.model_validate({"id": "t", "team": "red", "command": ("true",), **fields})


def fitting(index: MachineIndex, spec: TaskSpec) -> set[str]:
    mask = feasible(index, shape_of(spec), index.everywhere)
    return {index.machine(slot).name for slot in np.flatnonzero(mask).tolist()}


def test_a_tenth_of_a_gpu_taken_and_given_back_10_000_times_is_bit_equal_l09() -> None:
    index = MachineIndex(read("machine m1 cpu=4 gpu=1 gpu_milli=1000").fleet.machines)
    spec = a_spec(resources=Resources(cpu_milli=100, memory_mib=1, extra={"gpu_milli": 100}))
    before = index.free.copy()
    for _ in range(10_000):
        index.claim(M1, spec)
        index.release(M1, spec)
    assert index.free.dtype == np.int32
    assert index.free.tobytes() == before.tobytes()
    for _ in range(10):
        index.claim(M1, spec)
    assert fitting(index, spec) == set()
    assert index.free[index.extra_column("gpu_milli"), 0] == 0


def test_a_row_is_a_state_and_not_a_change() -> None:
    rows = read("""
        machine m1  cpu=4 fpga=2 label:disk=ssd taint:old=yes
        running r1  cpu=1 fpga=1 service=web  on m1
    """).fleet.machines
    index = MachineIndex(rows)
    before = index.free.copy()
    index.claim(M1, a_spec(constraints=Constraints(service="web")))
    index.upsert(rows)
    index.upsert(rows)
    assert np.array_equal(index.free, before)
    assert index.counts(Presence("red", "web"), index.everywhere).tolist()[0] == 1
    bare = replace(rows[0], labels={}, taints=(), used=(0,) * 5, used_extra={}, beside=())
    index.upsert([bare])
    assert index.free[0, 0] == 4_000
    assert index.free[index.extra_column("fpga"), 0] == 2
    assert fitting(index, a_spec()) == {"m1"}
    assert index.counts(Presence("red", "web"), index.everywhere).tolist()[0] == 0
    assert not meets(index, LabelTerm(key="disk", operator=Operator.EXISTS), index.everywhere).any()


def test_a_machine_that_leaves_takes_everything_along_and_its_slot_is_used_again() -> None:
    fleet = read("""
        machine m1  zone=a label:disk=ssd
        machine m2  zone=a
        running r1  service=web on m1
    """).fleet
    index = MachineIndex(fleet.machines)
    web = Presence("red", "web")
    assert index.spread_counts(web, Spread.ZONE, index.everywhere).tolist() == [1, 1]
    index.remove([M1, MachineId("c1", "never-seen")])
    assert (len(index), fitting(index, a_spec())) == (1, {"m2"})
    assert index.spread_counts(web, Spread.ZONE, index.everywhere)[index.slot(M2)] == 0
    index.release(M1, a_spec())
    third = replace(fleet.machines[1], name="m3")
    index.upsert([third])
    assert index.slots == 2
    assert fitting(index, a_spec()) == {"m2", "m3"}
    ssd = LabelTerm(key="disk", values=("ssd",))
    assert not meets(index, ssd, index.everywhere).any()


def test_the_full_compare_forgets_what_the_ledger_does_not_have() -> None:
    fleet = read("machine m1\nmachine m2").fleet
    index = MachineIndex(fleet.machines)
    index.replace(Fleet(machines=fleet.machines[1:], clusters={"c1": True}, revision=2))
    assert fitting(index, a_spec()) == {"m2"}
    index.refresh(Fleet(machines=(), clusters={"c1": False}, revision=3))
    assert fitting(index, a_spec()) == set()
    index.refresh(Fleet(machines=(), clusters={"c1": True}, revision=4))
    assert fitting(index, a_spec()) == {"m2"}


def test_a_column_below_zero_bars_only_those_who_need_it() -> None:
    machine = read("machine m1 gpu=1").fleet.machines[0]
    index = MachineIndex([replace(machine, used=(0, 0, 2, 0, 0))])
    assert index.free[2, 0] == -1
    assert fitting(index, a_spec()) == {"m1"}
    assert fitting(index, a_spec(resources={"cpu": 1, "memory": "1Mi", "gpu": 1})) == set()


def test_taking_below_or_giving_back_above_what_there_is_stops() -> None:
    index = MachineIndex(read("machine m1").fleet.machines)
    with pytest.raises(AssertionError):
        index.release(M1, a_spec())
    index.claim(M1, a_spec(constraints=Constraints(service="web")))
    with pytest.raises(AssertionError):
        index.release(M1, a_spec(constraints=Constraints(service="db")))


@pytest.mark.parametrize("machines", [RARE_MACHINES_MAX, RARE_MACHINES_MAX + 1, 200])
def test_rare_and_frequent_labels_answer_alike(machines: int) -> None:
    lines = [f"machine m{n} label:host=m{n} label:disk=ssd" for n in range(machines)]
    rows = list(read("\n".join([*lines, "machine x label:disk=hdd"])).fleet.machines)
    index = MachineIndex(rows)
    terms = [
        LabelTerm(key="disk", values=("ssd",)),
        LabelTerm(key="disk", operator=Operator.NOT_EQUAL, values=("ssd",)),
        LabelTerm(key="host", operator=Operator.IN, values=("m1", "m3", "m9999")),
        LabelTerm(key="host", operator=Operator.NOT_EXISTS),
    ]
    check_terms(index, rows, terms)
    rows[1] = replace(rows[1], labels={"disk": "hdd"})
    rows[2] = replace(rows[2], labels={})
    index.upsert(rows[1:3])
    check_terms(index, rows, terms)


def check_terms(index: MachineIndex, rows: list[MachineStanding], terms: list[LabelTerm]) -> None:
    for term in terms:
        expected = {row.name for row in rows if term.matches(dict(row.labels))}
        mask = meets(index, term, index.everywhere)
        assert {index.machine(slot).name for slot in np.flatnonzero(mask).tolist()} == expected


def test_many_frequent_labels_need_more_than_one_word() -> None:
    labels = " ".join(f"label:k{n}=v" for n in range(70))
    rows = read("\n".join(f"machine m{n} {labels}" for n in range(RARE_MACHINES_MAX + 1))).fleet
    index = MachineIndex([*rows.machines, *read("machine x").fleet.machines])
    for n in range(70):
        assert fitting(index, a_spec(constraints={"labels": [{"key": f"k{n}", "values": ["v"]}]}))
    assert fitting(
        index, a_spec(constraints={"labels": [{"key": "k69", "operator": "not exists"}]})
    ) == {"x"}


def test_a_rack_is_one_only_inside_its_cluster_and_zone() -> None:
    index = MachineIndex(
        read("""
            machine m1  cluster=c1 zone=a rack=r1
            machine m2  cluster=c2 zone=a rack=r1
            machine m3  cluster=c1 zone=b rack=r1
            machine m4  cluster=c1 zone=a rack=r1
            running r1  service=web on m1
        """).fleet.machines
    )
    counts = index.spread_counts(Presence("red", "web"), Spread.RACK, index.everywhere)
    assert {index.machine(slot).name for slot in np.flatnonzero(counts).tolist()} == {"m1", "m4"}


def test_spread_compares_with_the_least_used_domain_that_has_room() -> None:
    world = read("""
        machine m1  zone=a cordoned
        machine m2  zone=b
        machine m3  zone=c
        machine m4  zone=c
        running r1  service=web cpu=1m memory=1Mi on m2
        running r2  service=web cpu=1m memory=1Mi on m3
        running r3  service=web cpu=1m memory=1Mi on m4
    """)
    index = MachineIndex(world.fleet.machines)
    shape = shape_of(a_spec(constraints=Constraints(service="web", spread=Spread.ZONE)))
    hands = one_pool(
        index,
        Batch.of([shape]),
        index.everywhere,
        0,
        codes=np.zeros(1, dtype=np.int32),
        shifts=np.array([index.rules.shift(index, NO_RULE)], dtype=np.int32),
    )
    counts = SpreadCounts(index, hands.batch).table(hands, Spread.ZONE)
    scores = spread(barred(hands), counts)[:, 0].tolist()
    by_name = {index.machine(slot).name: score for slot, score in enumerate(scores)}
    del by_name["m1"]
    assert by_name == {"m2": 1.0, "m3": 0.5, "m4": 0.5}


def test_a_condition_asks_each_value_of_a_label_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    accepts = LabelTerm.accepts

    def noting(self: LabelTerm, there: str) -> bool:
        asked.append(there)
        return accepts(self, there)

    monkeypatch.setattr(LabelTerm, "accepts", noting)
    rows = read("".join(f"machine m{n} cpu=1 label:rev={n % 3}\n" for n in range(200))).fleet
    index = MachineIndex(rows.machines)
    term = LabelTerm(key="rev", operator=Operator.REGEXP, values=("^[12]",))
    met = meets(index, term, index.everywhere)
    assert np.count_nonzero(met) == sum(1 for n in range(200) if n % 3)
    index.upsert([replace(rows.machines[0], name="new", labels={"rev": "11"})])
    assert np.count_nonzero(meets(index, term, index.everywhere)) == np.count_nonzero(met) + 1
    index.remove([MachineId("c1", "new")])
    assert np.count_nonzero(meets(index, term, index.everywhere)) == np.count_nonzero(met)
    assert sorted(asked) == ["0", "1", "11", "2"]


def test_counts_kept_between_batches_are_those_that_are_there() -> None:
    machines = "\n".join(f"machine m{n} zone={'abc'[n % 3]} rack=r{n % 5} cpu=9" for n in range(15))
    index = MachineIndex(read(machines).fleet.machines)
    shapes = [
        shape_of(a_spec(constraints=Constraints(service=f"s{n}", spread=over)))
        for n, over in enumerate([Spread.ZONE, Spread.RACK, Spread.ZONE, Spread.RACK])
    ]
    kept = index.neighbours.rows
    for turn in range(4):
        batch = Batch.of([*shapes[turn % 2 :], *shapes[:2]])
        done = assign(index, batch, seed=turn)
        index.give_back(int(done.slot[0]), batch.shapes[0])
        for over in (Spread.ZONE, Spread.RACK):
            for presence, row in kept[over].row_of.items():
                there = index.domain_counts(presence, over)
                assert kept[over].table[row].tolist() == there.tolist(), (turn, presence, over)
    assert len(kept[Spread.RACK].row_of) >= 3
