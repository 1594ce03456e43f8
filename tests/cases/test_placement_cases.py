"""Peer cases about placement: what other schedulers are tested to answer, asked of our round.

`make cases CASES=folder`. What is answered otherwise on purpose is skipped with the reason that the
decision gives; topics that no file of this folder reads are named as not yet adapted.
"""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domain.constraint import Constraints, Even, LabelTerm, Limit, Operator, Taint, Toleration
from domain.fleet import Beside, MachineStanding
from domain.reasons import PREEMPTION_MAY_HELP, Reason
from domain.resources import COLUMNS, Resources
from placement.demand import Batch, Shape, shape_for
from placement.explain import explain
from placement.feasible import PREDICATES, feasible
from placement.hands import one_pool
from placement.index import MachineId, MachineIndex
from placement.score import Scorer, best_fit, load
from tests.cases.asking import Case, otherwise, parametrize

TOPICS = {
    "resource_fit": "placement_resources",
    "resource_score": "placement_resources",
    "node_affinity": "placement_affinity_taints",
    "taint_filter": "placement_affinity_taints",
    "attribute_operator": "constraint_operators",
    "distinct_placement": "constraint_operators",
    "spread_counts": "placement_spread",
    "spread_filter": "placement_spread",
}
"""By kind, its topic: one test of this file each."""
ANSWERED_OTHERWISE = {
    "piecewise_linear": "placement_resources",
    "preference_score": "placement_affinity_taints",
    "taint_score": "placement_affinity_taints",
    "fit_score": "packing_scores",
    "reschedule_penalty": "packing_scores",
    "spread_score": "packing_scores",
}
"""Kinds that ask for what we do otherwise, every case of them: the decision says how."""
DECISION = Path(__file__).parents[2] / "docs/decisions/0042-peer-cases-of-placement.md"
"""Every case that we answer otherwise, or that cannot be asked in our words, stands there with the
reason: `| case | reason |`."""
OPERATORS = {
    **dict.fromkeys(("=", "==", "is"), Operator.EQUAL),
    **dict.fromkeys(("!=", "not"), Operator.NOT_EQUAL),
    "in": Operator.IN,
    "not_in": Operator.NOT_IN,
    "is_set": Operator.EXISTS,
    "exists": Operator.EXISTS,
    "not_exists": Operator.NOT_EXISTS,
    "gt": Operator.MORE,
    "lt": Operator.LESS,
    **{name: Operator(name) for name in ("<", "<=", ">", ">=", "version", "semver", "regexp")},
    "set_contains_all": Operator.CONTAINS,
    "set_contains_any": Operator.CONTAINS_ANY,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, TOPICS, ANSWERED_OTHERWISE, DECISION)


_SOME, _NOTHING = Resources(cpu_milli=1_000, memory_mib=1_024), Resources()


def a_machine(
    resources: Resources = _SOME,
    used: Resources = _NOTHING,
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    *,
    name: str = "m",
    beside: tuple[Beside, ...] = (),
) -> MachineStanding:
    labels = labels or {}
    return MachineStanding(
        cluster="c",
        name=name,
        zone=labels.get("zone", ""),
        rack=labels.get("rack", ""),
        labels=labels,
        taints=taints,
        capacity=resources.vector(),
        used=used.vector(),
        cordoned=False,
        reachable=True,
        capacity_extra=resources.extra,
        used_extra=used.extra,
        beside=beside,
    )


def a_shape(constraints: Constraints, team: str = "default") -> Shape:
    return shape_for(Resources(cpu_milli=1, memory_mib=1), constraints, team=team)


def fits(machine: MachineStanding, shape: Shape) -> bool:
    index = MachineIndex([machine])
    return bool(feasible(index, shape, index.everywhere)[0])


_STANDARD = {"cpu": "cpu_milli", "memory": "memory_mib", "ephemeral": "disk_mib"}


def _name(written: str) -> str:
    """Our names of resources hold no slash."""
    return _STANDARD.get(written, written.replace("/", "."))


def _resources(written: dict[str, int]) -> Resources:
    named = {_name(name): amount for name, amount in written.items()}
    extra = {name: amount for name, amount in named.items() if name not in COLUMNS}
    return Resources(**{n: v for n, v in named.items() if n in COLUMNS}, extra=extra)


def _needed(task: dict[str, Any]) -> dict[str, int]:
    """What the task needs at its greatest: steps before the start run in turn, parts together."""
    steps = task.get("before_start", [])
    parts = task.get("containers", [])
    overhead = task.get("overhead", {})
    names = {name for one in [*steps, *parts, overhead] for name in one}
    return {
        name: max(
            [sum(part.get(name, 0) for part in parts), *(step.get(name, 0) for step in steps)]
        )
        + overhead.get(name, 0)
        for name in sorted(names)
    }


def test_resource_fit(case: dict[str, Any]) -> None:
    given, expect = case["given"], case["expect"]
    machine = a_machine(
        resources=_resources(given["node"]["capacity"]), used=_resources(given["node"]["used"])
    )
    # A task must ask for something; a shape may ask for nothing.
    shape = replace(a_shape(Constraints()), resources=_resources(_needed(given["task"])))
    assert fits(machine, shape) == expect["fits"]
    if not expect["fits"]:
        name = _name(expect["short_of"])
        free = expect["capacity"] - expect["used"]
        there = f"largest free {name} {free} < {expect['wanted']}"
        absent = f"no machine has {name}"
        detail = explain(MachineIndex([machine]), shape).detail
        assert detail.partition(";")[0] == (there if name in _named(machine) else absent)


def _named(machine: MachineStanding) -> set[str]:
    return {*COLUMNS, *machine.capacity_extra, *machine.used_extra}


def test_node_affinity(case: dict[str, Any]) -> None:
    task, machine = case["given"]["task"], case["given"]["node"]
    terms = [LabelTerm(key=k, values=(v,)) for k, v in task.get("selector", {}).items()]
    alternatives = task.get("required_any_of", [])
    assert len(alternatives) <= 1, "more alternatives than one cannot be written"
    for alternative in alternatives:
        for term in alternative["labels"]:
            operator = OPERATORS[term["operator"]]
            values = tuple(term.get("values", ()))
            terms.append(LabelTerm(key=term["key"], operator=operator, values=values))
    shape = a_shape(Constraints(labels=tuple(terms)))
    assert fits(a_machine(labels=machine["labels"]), shape) == case["expect"]["feasible"]


def test_taint_filter(case: dict[str, Any]) -> None:
    given = case["given"]
    taints = [Taint(key=one["key"], value=one["value"]) for one in given["node"]["taints"]]
    assert all(one["effect"] == "no_placing" for one in given["node"]["taints"])
    tolerations = [
        Toleration(key=one["key"], value=None if one["operator"] == "exists" else one["value"])
        for one in given["tolerations"]
    ]
    shape = a_shape(Constraints(tolerations=tuple(tolerations)))
    assert fits(a_machine(taints=tuple(taints)), shape) == case["expect"]["feasible"]


def test_attribute_operator(case: dict[str, Any]) -> None:
    given = case["given"]
    operator = OPERATORS[given["operator"]]
    values: tuple[str, ...] = () if given["wanted"] is None else (str(given["wanted"]),)
    if operator is Operator.CONTAINS:
        values = tuple(part.strip() for part in values[0].split(","))
    labels = {} if given["node_value"] is None else {"attribute": str(given["node_value"])}
    term = LabelTerm(key="attribute", operator=operator, values=values)
    match = case["expect"]["match"]
    assert term.matches(labels) == match
    assert fits(a_machine(labels=labels), a_shape(Constraints(labels=(term,)))) == match


def test_distinct_placement(case: Case) -> None:
    given = case["given"]
    asked, team = given["constraint"], given.get("namespace", "default")
    service = _service(given["job"], given["placing_group"], asked)
    if asked["kind"] == "distinct_hosts":
        rules = Constraints(service=service, max_per_machine=1)
        labels: dict[str, dict[str, str]] = {name: {} for name in given["nodes"]}
    else:
        limit = Limit(over=f"label:{asked['attribute']}", tasks=asked["max_per_value"])
        rules = Constraints(service=service, limits=(limit,))
        values = given["node_attribute"].items()
        labels = {name: {asked["attribute"]: value} for name, value in values}
    there = [one for one in given["placed"] if not one.get("stopping_in_this_plan")]
    machines = []
    for name, bears in labels.items():
        mine = [one for one in there if one["node"] == name]
        beside = tuple(
            Beside(
                one.get("namespace", "default"), _service(one["job"], one["group"], asked), (), 1
            )
            for one in mine
        )
        machines.append(a_machine(labels=bears, name=name, beside=beside))
    assert _feasible_names(machines, a_shape(rules, team)) == set(case["expect"]["feasible"])


def _service(job: str, group: str, asked: dict[str, Any]) -> str:
    """What counts together: the whole job, or one group of it."""
    return job if asked["scope"] == "job" else f"{job}.{group}"


def _feasible_names(machines: list[MachineStanding], shape: Shape) -> set[str]:
    index = MachineIndex(machines)
    mask = feasible(index, shape, index.everywhere)
    return {index.machine(slot).name for slot in range(index.slots) if mask[slot]}


def _spread_world(given: dict[str, Any]) -> tuple[MachineIndex, str, str, list[LabelTerm]]:
    """The machines, the task's team and service, and what it wants of machines."""
    task = given["task"]
    [service] = task["labels"]
    machines = []
    for node in given["nodes"]:
        mine = [one for one in given["placed"] if one["node"] == node["name"]]
        beside = tuple(
            Beside(one.get("tenant", "default"), service, (), 1)
            for one in mine
            if service in one["labels"] and not one.get("stopping")
        )
        taints = tuple(Taint(key=taint["key"]) for taint in node.get("taints", ()))
        machines.append(
            a_machine(labels=node["labels"], taints=taints, name=node["name"], beside=beside)
        )
    terms = []
    if "node_must_be_in" in task:
        names = tuple(task["node_must_be_in"])
        terms.append(LabelTerm(key="node", operator=Operator.IN, values=names))
    if "node_must_not_be_in" in task:
        names = tuple(task["node_must_not_be_in"])
        terms.append(LabelTerm(key="node", operator=Operator.NOT_IN, values=names))
    return MachineIndex(machines), task["tenant"], service, terms


def _even(asked: dict[str, Any], service: str, **differs: int) -> Even:
    assert asked["counts_label"] == service, "a task counts its own service"
    assert asked["respect_task_node_rules"]
    assert not asked["respect_taints"]
    over = asked["over"] if asked["over"] in ("zone", "rack") else f"label:{asked['over']}"
    told = {"max_skew": asked["max_skew"], "min_domains": asked.get("min_domains", 1)} | differs
    return Even(over=over, **told)


def _kept_off(index: MachineIndex, shape: Shape) -> dict[str, Reason]:
    """By machine, what the rule about spreading says, and nothing else."""
    found: dict[str, Reason] = {}
    for predicate in PREDICATES:
        if predicate.reason in (Reason.NO_SUCH_DOMAIN, Reason.UNEVEN):
            passed = predicate.test(index, shape, index.everywhere)
            for slot in range(index.slots):
                if passed is not None and not passed[slot]:
                    found.setdefault(index.machine(slot).name, predicate.reason)
    return found


def test_spread_filter(case: Case) -> None:
    given = case["given"]
    index, team, service, terms = _spread_world(given)
    even = tuple(_even(asked, service) for asked in given["constraints"])
    shape = a_shape(Constraints(service=service, labels=tuple(terms), even=even), team)
    kept_off = _kept_off(index, shape)
    for name, answer in case["expect"].items():
        reason = kept_off.get(name)
        if answer == "ok":
            assert reason is None, (name, reason)
        else:
            assert reason is not None, name
            assert (reason in PREEMPTION_MAY_HELP) == (answer == "no"), (name, reason)


def test_spread_counts(case: Case) -> None:
    """What is counted shows in the least skew that lets a task in, where the fewest are none."""
    given = case["given"]
    index, team, service, terms = _spread_world(given)
    where = {node["name"]: node["labels"] for node in given["nodes"]}
    asked_counts = zip(given["constraints"], case["expect"]["counts"], strict=True)
    for number, (asked, counts) in enumerate(asked_counts):
        assert sorted(counts.values())[:2] == case["expect"]["two_lowest"][number]
        for skew in range(1, max(counts.values()) + 2):
            for fewest, differs in ((0, {"min_domains": 10_000}), (min(counts.values()), {})):
                even = _even(asked, service, max_skew=skew, **differs)
                rules = Constraints(service=service, labels=tuple(terms), even=(even,))
                kept_off = _kept_off(index, a_shape(rules, team))
                for name, labels in where.items():
                    held = counts[labels[asked["over"]]]
                    assert (name in kept_off) == (held + 1 - fewest > skew), (name, skew)


def test_resource_score(case: Case) -> None:
    """The mean part left over (or taken), in whole hundredths: ours are not cut to whole ones."""
    given, asked = case["given"], case["given"]["score"]
    assert len(set(asked["weights"].values())) == 1, "resources weigh the same"
    scorer = best_fit if asked["kind"] == "most_allocated" else load
    if asked["kind"] == "requested_to_capacity":
        assert asked["shape"] == [[0, 10], [100, 0]], "that is what is left over"
    machines = [
        a_machine(resources=_amounts(node), used=_amounts(node["used"]), name=node["name"])
        for node in given["nodes"]
    ]
    scores = _scores(scorer, machines, shape_for(_amounts(given["task"])))
    for name, expected in case["expect"]["scores"].items():
        assert abs(100 * scores[name] - expected) < 1.0, (name, scores)


def _amounts(written: dict[str, int]) -> Resources:
    return Resources(cpu_milli=written["cpu_milli"], memory_mib=written["memory"])


def _scores(scorer: Scorer, machines: list[MachineStanding], shape: Shape) -> dict[str, float]:
    index, batch = MachineIndex(machines), Batch.of([shape])
    hands = one_pool(index, batch, index.everywhere, 0, codes=batch.code, shifts=None)
    scores = scorer(hands)[:, 0]
    slots = {one.name: index.slot(MachineId(one.cluster, one.name)) for one in machines}
    return {name: float(scores[slot]) for name, slot in slots.items() if slot is not None}


def test_answered_otherwise(case: Case) -> None:
    raise AssertionError(f"{case['id']} stands in no decision")


def test_every_kind_of_an_adapted_topic_is_read_or_answered_otherwise(
    request: pytest.FixtureRequest,
) -> None:
    folder = request.config.getoption("--cases")
    if folder is None:
        pytest.skip("no folder of peer cases was given (--cases)")
    known = TOPICS | ANSWERED_OTHERWISE
    for topic in sorted(set(known.values())):
        for case in json.loads((Path(folder) / f"{topic}.json").read_text())["cases"]:
            assert known.get(case["kind"]) == topic, case["id"]
    assert set(ANSWERED_OTHERWISE) <= set(otherwise(DECISION))


def test_topics_that_are_not_yet_adapted_are_named(request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--cases")
    if folder is None:
        pytest.skip("no folder of peer cases was given (--cases)")
    adapted = set(ANSWERED_OTHERWISE.values())
    for file in Path(__file__).parent.glob("test_*.py"):
        module = importlib.import_module(f"tests.cases.{file.stem}")
        adapted |= set(getattr(module, "TOPICS", {}).values())
    missing = {file.stem for file in Path(folder).glob("*.json")} - adapted
    if missing:
        pytest.skip(f"not yet adapted: {', '.join(sorted(missing))}")
