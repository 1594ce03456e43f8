"""The checker knows the rules about labels and between tasks, and the engine keeps them."""

import random

import pytest

from domain.constraint import Apart, Constraints, Even, LabelTerm, Limit, Near, Operator
from drystone.simulate.cells import InputError
from drystone.simulate.check import check
from drystone.simulate.check_rules import label_met
from drystone.simulate.formats import DRYSTONE, read_tasks
from drystone.simulate.records import Demand, Outcome, Placement, TaskRow
from tests.placement.worlds import LABELS, WANTED
from tests.simulate.worlds import a_demand, a_machine, ran, where

MACHINES = [
    a_machine("a1", zone="a", rack="r1", labels={"disk": "ssd", "cores": "8"}),
    a_machine("a2", zone="a", rack="r2", labels={"disk": "hdd", "cores": "16"}),
    a_machine("b1", zone="b", rack="r1", labels={"disk": "ssd", "cores": "many"}),
    a_machine("n1", labels={}),
]


def a_ruled(service: str = "", **rules: object) -> Demand:
    given = Constraints.model_validate({**rules, "service": service or None})
    return a_demand(cpu=10, service=service, rules=given)


DB = a_ruled("db")
MORE = Operator.MORE


def told(*placed: tuple[Demand, str, int]) -> list[str]:
    """What the checker says of demands on machines, each from a moment on."""
    stream = [TaskRow(f"t{n}", demand, at, None) for n, (demand, _, at) in enumerate(placed)]
    lines = [
        Placement(
            task_id=f"t{n}", attempt=1, machine_id=name, placed_ms=at, outcome=Outcome.RUNNING
        )
        for n, (_, name, at) in enumerate(placed)
    ]
    return check(MACHINES, stream, lines).described


def test_what_keeps_its_rules_is_right():
    near, ring = a_ruled(near=(Near(service="db", over="zone"),)), Near(service="ring", over="rack")
    assert told((DB, "a1", 0), (near, "a2", 0)) == []
    assert told((near, "a2", 0), (DB, "a1", 0)) == [], "of one moment in any order"
    assert told(*[(a_ruled("ring", near=(ring,)), "a1", 0)] * 2) == []
    even = a_ruled("db", even=(Even(over="zone"),))
    assert told((even, "a1", 0), (even, "a2", 0), (even, "b1", 0)) == []
    assert (
        told((a_ruled("web", apart=(Apart(service="db", over="zone"),)), "b1", 0), (DB, "n1", 0))
        == []
    )


@pytest.mark.parametrize(
    ("placed", "says"),
    [
        (
            [(a_ruled(near=(Near(service="db", over="zone"),)), "b1", 0), (DB, "a1", 0)],
            "t0 on b1: is not near 'db'",
        ),
        (
            [(a_ruled(near=(Near(service="db"),)), "a1", 0), (DB, "a1", 5)],
            "t0 on a1: is not near 'db'",
        ),
        (
            [(DB, "a1", 0), (a_ruled(apart=(Apart(service="db", over="zone"),)), "a2", 1)],
            "t1 on a2: shares its zone with 'db'",
        ),
        (
            [(a_ruled(apart=(Apart(service="db", over="zone"),)), "a2", 0), (DB, "a1", 1)],
            "t1 on a1: is shunned in its zone by a task on a2",
        ),
        ([(DB, "a1", 0), (a_ruled(anti_affinity=("db",)), "a1", 1)], "t1 on a1: is beside 'db'"),
        (
            [(a_ruled(anti_affinity=("db",)), "a1", 0), (DB, "a1", 1)],
            "t1 on a1: is shunned by a task on a1",
        ),
        (
            [(DB, "a1", 0), (a_ruled("db", limits=(Limit(over="label:disk"),)), "b1", 0)],
            "t1 on b1: too many of 'db' in its label:disk",
        ),
        (
            [(a_ruled("db", limits=(Limit(over="rack"),)), "n1", 0)],
            "t0 on n1: too many of 'db' in its rack",
        ),
        (
            [(a_ruled("db", even=(Even(over="zone"),)), "a1", 0)] * 2,
            "on a1: 'db' is uneven over its zone",
        ),
        (
            [(a_ruled(labels=(LabelTerm(key="cores", operator=MORE, values=("8",)),)), "a1", 0)],
            "t0 on a1: has label cores = '8'",
        ),
    ],
)
def test_what_breaks_a_rule_is_found(placed, says):
    assert any(says in what for what in told(*placed)), told(*placed)


def test_the_checker_reads_labels_as_the_domain_does():
    seed = 7_261
    print("seed", seed)
    chance = random.Random(seed)
    for key, values in LABELS.items():
        for operator, wanted in WANTED.items():
            for one in wanted:
                term = LabelTerm(key=key, operator=operator, values=(one,))
                for there in (*values, "1.3.0", "1.3.0-a.1", str(chance.randint(-9, 40))):
                    labels = {key: there}
                    assert label_met(term, labels) == term.matches(labels), (term, there)
                assert not label_met(term, {})


@pytest.mark.parametrize("timed", [False, True])
def test_runs_of_tasks_with_rules_pass_the_check(timed):
    seed = 4_120
    print("seed", seed)
    chance = random.Random(seed)
    fleet = [
        a_machine(
            f"m{n}", cpu=2_000, zone=f"z{n % 3}", rack=f"r{n % 2}", labels={"row": str(n % 4)}
        )
        for n in range(12)
    ]
    kinds = [
        a_ruled("db"),
        a_ruled("db", limits=(Limit(over="rack", tasks=3),)),
        a_ruled("web", apart=(Apart(service="db", over="rack"),)),
        a_ruled("web", even=(Even(over="zone", max_skew=2),)),
        a_ruled(
            "ring", near=(Near(service="ring", over="zone"),), limits=(Limit(over="label:row"),)
        ),
        a_ruled(near=(Near(service="ring", over="zone"),)),
    ]
    stream = []
    for n in range(60):
        at = chance.randint(0, 40) * 1_000 if timed else None
        lasts = chance.choice([None, 5_000, 9_000]) if timed else None
        stream.append(TaskRow(f"t{n}", chance.choice(kinds), at, lasts))
    done = ran(fleet, stream, seed=seed)
    assert len([name for name in where(done).values() if name]) > 30


def test_rules_are_read_from_their_column(tmp_path):
    file = tmp_path / "tasks.csv"
    rules = '"{""limits"": [{""over"": ""rack""}]}"'
    file.write_text(f"id,service,rules\na,db,{rules}\nb,,\n")
    first, second = read_tasks(file, DRYSTONE)
    assert first.demand.rules.limits == (Limit(over="rack"),)
    assert second.demand.rules == Constraints()
    for written, says in (
        ("[]", "rules must be a JSON object"),
        ("{", "rules must be JSON"),
        ('"{""zones"": [""a""]}"', "rules: unknown: zones"),
        ('"{""near"": [{""servce"": ""a""}]}"', "rules: unknown: near.servce"),
        ('"{""limits"": [{""over"": ""rack""}]}"', "limits needs service"),
    ):
        file.write_text(f"id,rules\na,{written}\n")
        with pytest.raises(InputError) as caught:
            read_tasks(file, DRYSTONE)
        assert says in str(caught.value), caught.value
