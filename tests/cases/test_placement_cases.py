"""Peer cases about placement: what other schedulers are tested to answer, asked of our round.

`make cases CASES=folder`. Kinds that no test of this folder reads are not yet adapted; a case of an
adapted kind that we answer differently, or cannot ask in our words, stands below with the reason.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domain.constraint import Constraints, LabelTerm, Operator, Taint, Toleration
from domain.fleet import MachineStanding
from domain.resources import COLUMNS, Resources
from domain.task import TaskSpec
from placement.demand import Shape, shape_of
from placement.explain import explain
from placement.feasible import feasible
from placement.index import MachineIndex

TOPICS = {
    "resource_fit": "placement_resources",
    "node_affinity": "placement_affinity_taints",
    "taint_filter": "placement_affinity_taints",
    "attribute_operator": "constraint_operators",
}

_NO_WORD = "our constraints have no word for it"
DIFFERENT = {
    "resource-fit-030": "no resource is ever ignored: what a task asks for, it gets",
    "node-affinity-016": "label terms all hold; alternatives are written with `in`",
    "node-affinity-019": "any text is a label value, so `not in` an odd one holds",
    "node-affinity-025": "a task names clusters, zones and labels, never a machine",
    "taint-filter-006": "a toleration covers its key and value; effects are not told apart",
    "attribute-operator-011": _NO_WORD,
    "attribute-operator-043": "semver has no `~>`: it is refused at submission, and never asked",
    "attribute-operator-058": _NO_WORD,
}
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
    """One test per case; one visible skip where no folder was given or a topic is missing."""
    kind = metafunc.function.__name__.removeprefix("test_")
    folder = metafunc.config.getoption("--cases")
    if folder is None:
        skip = pytest.mark.skip(reason="no folder of peer cases was given (--cases)")
        metafunc.parametrize("case", [pytest.param({}, marks=skip, id="none")])
        return
    path = Path(folder) / f"{TOPICS[kind]}.json"
    if not path.exists():
        skip = pytest.mark.skip(reason=f"{path.name} is not in the folder of peer cases")
        metafunc.parametrize("case", [pytest.param({}, marks=skip, id="none")])
        return
    cases = [case for case in json.loads(path.read_text())["cases"] if case["kind"] == kind]
    assert cases, f"{path.name} holds no case of {kind}"
    metafunc.parametrize("case", [_param(case) for case in cases])


def _param(case: dict[str, Any]) -> Any:
    reason = DIFFERENT.get(case["id"])
    operators = [case["given"].get("operator", "=")]
    for term in case["given"].get("task", {}).get("required_any_of", []):
        operators += [label["operator"] for label in term.get("labels", [])]
    assert set(operators) <= OPERATORS.keys(), case["id"]
    marks = [pytest.mark.skip(reason=f"{case['id']}: {reason}")] if reason else []
    return pytest.param(case, marks=marks, id=case["id"])


_SOME, _NOTHING = Resources(cpu_milli=1_000, memory_mib=1_024), Resources()


def a_machine(
    resources: Resources = _SOME,
    used: Resources = _NOTHING,
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
) -> MachineStanding:
    return MachineStanding(
        cluster="c",
        name="m",
        zone="",
        rack="",
        labels=labels or {},
        taints=taints,
        capacity=resources.vector(),
        used=used.vector(),
        cordoned=False,
        reachable=True,
        capacity_extra=resources.extra,
        used_extra=used.extra,
    )


def a_shape(constraints: Constraints) -> Shape:
    resources = Resources(cpu_milli=1, memory_mib=1)
    spec = TaskSpec(id="t", command=("true",), resources=resources, constraints=constraints)
    return shape_of(spec)


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
        assert detail == (there if name in _named(machine) else absent)


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
    values = () if given["wanted"] is None else (str(given["wanted"]),)
    if operator is Operator.CONTAINS:
        values = tuple(part.strip() for part in values[0].split(","))
    labels = {} if given["node_value"] is None else {"attribute": str(given["node_value"])}
    term = LabelTerm(key="attribute", operator=operator, values=values)
    match = case["expect"]["match"]
    assert term.matches(labels) == match
    assert fits(a_machine(labels=labels), a_shape(Constraints(labels=(term,)))) == match
