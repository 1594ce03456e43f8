"""Predicates: may this shape run there? Each is (index, shape, at) -> mask with one Reason.

A predicate answers None where the shape asks nothing of the kind. Knows nothing of scores or order.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from domain.constraint import LabelTerm, Operator, Taint
from domain.reasons import RESOURCE_REASON, Reason
from domain.resources import COLUMNS
from placement.demand import Shape
from placement.domains import Domains
from placement.neighbours import Presence
from placement.pairs import At, Mark, Mask

if TYPE_CHECKING:
    from placement.index import MachineIndex

_GPU = COLUMNS.index("gpu")

Test = Callable[["MachineIndex", Shape, At], Mask | None]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A test and the one reason it gives to the machines that it removes."""

    reason: Reason
    test: Test
    moves: bool = False
    """True when an assignment of the same round may change the answer; and then only to no, but for
    the tasks that are placed one at a time (`placement.wide`)."""


def _in_cluster(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
    asked = shape.constraints.clusters
    return _named(asked, index.clusters)[index.cluster[: index.slots][at]] if asked else None


def _in_zone(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
    asked = shape.constraints.zones
    return _named(asked, index.zones)[index.zone[: index.slots][at]] if asked else None


def _named(names: Iterable[str], codes: Mapping[str, int]) -> Mask:
    """By code, whether it is the code of one of these names."""
    answer = np.zeros(len(codes), dtype=np.bool_)
    answer[[codes[name] for name in names if name in codes]] = True
    return answer


def meets(index: "MachineIndex", term: LabelTerm, at: At) -> Mask:
    """True where the machine's label meets one condition; equals `term.matches(labels)`."""
    match term.operator:
        case Operator.EXISTS | Operator.NOT_EXISTS:
            found = index.bears_any([Mark("has", term.key, "")], at)
        case Operator.EQUAL | Operator.NOT_EQUAL | Operator.IN | Operator.NOT_IN:
            found = index.bears_any([Mark("label", term.key, v) for v in term.values], at)
        case _:
            found = index.bears_any(index.marks.meeting(term), at)
    negated = term.operator in (Operator.NOT_EQUAL, Operator.NOT_IN, Operator.NOT_EXISTS)
    return ~found if negated else found


def _labelled(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
    answer: Mask | None = None
    for term in shape.constraints.labels:
        met = meets(index, term, at)
        answer = met if answer is None else answer & met
    return answer


def not_tolerated(index: "MachineIndex", shape: Shape) -> list[Mark]:
    """The taints of the fleet that repel the shape."""
    tolerations = shape.constraints.tolerations
    return [
        mark
        for mark in index.marks.known("taint")
        if not any(t.tolerates(Taint(key=mark.key, value=mark.value)) for t in tolerations)
    ]


def _untainted(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
    repelling = not_tolerated(index, shape)
    return ~index.bears_any(repelling, at) if repelling else None


def _reachable(index: "MachineIndex", _: Shape, at: At) -> Mask | None:
    return index.may_place(at)


def _uncordoned(index: "MachineIndex", _: Shape, at: At) -> Mask | None:
    return ~index.cordoned[: index.slots][at]


def _not_cooling(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
    if not shape.cooling:
        return None
    return ~_named(shape.cooling, index.clusters)[index.cluster[: index.slots][at]]


def _room_in(column: int) -> Test:
    def has_room(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
        amount = shape.resources.vector()[column]
        return index.free[column, : index.slots][at] >= amount if amount else None

    return has_room


def _room_for_gpu(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
    """Whole devices that nobody uses, or one device with enough of a share left."""
    if shape.gpu_milli:
        return index.room.devices.most[: index.slots][at] >= shape.gpu_milli
    return _room_in(_GPU)(index, shape, at)


def _room_in_extras(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
    answer: Mask | None = None
    for name, amount in shape.resources.extra.items():
        if not amount:
            continue
        column = index.extra_column(name)
        if column is None:
            return np.zeros_like(index.present[: index.slots][at])
        enough = index.free[column, : index.slots][at] >= amount
        answer = enough if answer is None else answer & enough
    return answer


def may_use(index: "MachineIndex", shape: Shape) -> Mask:
    """Over all slots: True where the shape's own clusters, zones and labels let it run."""
    return feasible(index, shape, index.everywhere, ASKED)


def _over_domains(reason: Reason) -> Test:
    def passes(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
        answer: Mask | None = None
        if shape.constraints.over_domains or shape.constraints.service is not None:
            for ruling in Domains(index, may_use).rulings(shape, reason):
                here = ruling.at(at)
                answer = here if answer is None else answer & here
        return answer

    return passes


def _apart(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
    """Nobody there whom the task shuns, and nobody who shuns the task: the rule binds both."""
    rules = shape.constraints
    unwanted = [Presence(shape.team, service) for service in rules.anti_affinity]
    if rules.service is not None:
        unwanted.append(Presence(shape.team, rules.service, True))
    answer = _over_domains(Reason.ANTI_AFFINITY)(index, shape, at)
    for presence in unwanted:
        if index.neighbours.by_slot(presence):
            nobody = index.counts(presence, at) == 0
            answer = nobody if answer is None else answer & nobody
    return answer


def _below_its_number(index: "MachineIndex", shape: Shape, at: At) -> Mask | None:
    rules = shape.constraints
    if rules.service is None or rules.max_per_machine is None:
        return None
    return index.counts(Presence(shape.team, rules.service), at) < rules.max_per_machine


PREDICATES = (
    Predicate(Reason.OTHER_CLUSTER, _in_cluster),
    Predicate(Reason.OTHER_ZONE, _in_zone),
    Predicate(Reason.LABEL_MISSING, _labelled),
    Predicate(Reason.TAINTED, _untainted),
    Predicate(Reason.UNREACHABLE, _reachable),
    Predicate(Reason.CORDONED, _uncordoned),
    Predicate(Reason.COOLING_DOWN, _not_cooling),
    *(
        Predicate(
            RESOURCE_REASON[name],
            _room_for_gpu if column == _GPU else _room_in(column),
            moves=True,
        )
        for column, name in enumerate(COLUMNS)
    ),
    Predicate(Reason.NO_ROOM_EXTRA, _room_in_extras, moves=True),
    Predicate(Reason.NO_SUCH_DOMAIN, _over_domains(Reason.NO_SUCH_DOMAIN), moves=True),
    Predicate(Reason.ANTI_AFFINITY, _apart, moves=True),
    Predicate(Reason.TOO_MANY_PER_MACHINE, _below_its_number, moves=True),
    *(
        Predicate(reason, _over_domains(reason), moves=True)
        for reason in (
            Reason.TOO_MANY_PER_RACK,
            Reason.TOO_MANY_PER_ZONE,
            Reason.TOO_MANY_PER_VALUE,
            Reason.UNEVEN,
            Reason.NOT_NEAR,
        )
    ),
)
"""In the order in which machines are counted as lost: first what the task itself rules out."""

SETTLED = tuple(predicate for predicate in PREDICATES if not predicate.moves)
ASKED = PREDICATES[:3]
"""Clusters, zones and labels: what the task itself wants of machines."""
MOVING = tuple(predicate for predicate in PREDICATES if predicate.moves)


def feasible(
    index: "MachineIndex", shape: Shape, at: At, predicates: Iterable[Predicate] = PREDICATES
) -> Mask:
    """True for the machines of `at` that pass every one of these predicates."""
    mask = index.present[: index.slots][at].copy()
    for predicate in predicates:
        passed = predicate.test(index, shape, at)
        if passed is not None:
            mask &= passed
    return mask
