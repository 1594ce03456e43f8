"""Why a shape fits nowhere: machines lost per reason, and the nearest miss in words."""

import numpy as np
import numpy.typing as npt

from domain.constraint import LabelTerm, Operator
from domain.reasons import RESOURCE_REASON, Reason
from domain.resources import COLUMNS
from domain.verdict import Verdict
from placement.demand import Shape
from placement.domains import TOO_MANY
from placement.feasible import MOVING, PREDICATES, feasible, meets, not_tolerated
from placement.index import MachineIndex
from placement.pairs import Mask
from placement.room import Slots

ASKED_FOR = frozenset(
    {
        *(Reason.OTHER_CLUSTER, Reason.OTHER_ZONE, Reason.LABEL_MISSING, Reason.TAINTED),
        Reason.NO_SUCH_DOMAIN,
    }
)
"""What the task's own rules take away is seldom why it waits: these are foremost only when nothing
else is lost, that is, when no machine meets the rules at all; then the last rule is the nearest."""

ROOM = frozenset({*RESOURCE_REASON.values(), Reason.NO_ROOM_EXTRA})
"""What other tasks, or the machine's size, leave too little of."""
GPU_SHARE = "thousandths of a gpu"
Lacks = npt.NDArray[np.int64]

_COLUMN_OF = {
    Reason.NO_ROOM_CPU: 0,
    Reason.NO_ROOM_MEMORY: 1,
    Reason.NO_ROOM_GPU: 2,
    Reason.NO_ROOM_DISK: 3,
    Reason.NO_ROOM_NET: 4,
}


_BETWEEN = frozenset(
    {
        *(Reason.NO_SUCH_DOMAIN, Reason.UNEVEN, Reason.NOT_NEAR),
        *(Reason.TOO_MANY_PER_RACK, Reason.TOO_MANY_PER_ZONE, Reason.TOO_MANY_PER_VALUE),
    }
)


def explain(index: MachineIndex, shape: Shape) -> Verdict:
    """The verdict on a shape that no machine can take now; each machine is lost once, at the first
    predicate that removes it."""
    if not len(index):
        return Verdict(reason=Reason.NO_MACHINES_YET, detail="no machine has registered yet")
    removed = _removed(index, shape)
    lost = {reason: int(np.count_nonzero(mask)) for reason, mask in removed.items()}
    assert sum(lost.values()) == len(index), "only a shape that fits nowhere has a verdict"
    # Of equal counts the later predicate comes first: its machines came nearer to a yes.
    places = list(lost)
    ordered = sorted(lost.items(), key=lambda item: (-item[1], -places.index(item[0])))
    foremost = next((r for r, _ in ordered if r not in ASKED_FOR), places[-1])
    detail = _detail(index, shape, foremost, removed[foremost])
    if foremost in ROOM:
        detail = "; ".join([detail, *_nearest(index, shape, removed)])
    return Verdict(reason=foremost, machines=len(index), lost=dict(ordered), detail=detail)


def _nearest(index: MachineIndex, shape: Shape, removed: dict[Reason, Mask]) -> list[str]:
    """The machine that only lacks room and lacks least, of what it lacks most in parts of the ask:
    `nearest: c1/m7 lacks 500 cpu_milli`. Of equal ones the first by name; none where every machine
    is kept off by something else as well."""
    cramped = np.any([mask for reason, mask in removed.items() if reason in ROOM], axis=0)
    slots = np.flatnonzero(cramped)
    slots = slots[feasible(index, shape, slots, [p for p in MOVING if p.reason not in ROOM])]
    if not len(slots):
        return []
    lacks = _lacking(index, shape, slots)
    asked = _asked(shape)
    parts = np.stack([lacks[name] / asked[name] for name in lacks])
    worst = parts.max(axis=0)
    best = slots[worst == worst.min()]
    slot = min(best.tolist(), key=index.machine)
    at = int(np.flatnonzero(slots == slot)[0])
    words = [f"{int(lacks[name][at])} {name}" for name in lacks if lacks[name][at] > 0]
    return [f"nearest: {'/'.join(index.machine(slot))} lacks {' and '.join(words)}"]


def _asked(shape: Shape) -> dict[str, int]:
    asked = dict(zip(COLUMNS, shape.resources.vector(), strict=True)) | shape.resources.extra
    if shape.gpu_milli:
        asked[GPU_SHARE] = shape.gpu_milli
    return {name: amount for name, amount in asked.items() if amount}


def _lacking(index: MachineIndex, shape: Shape, slots: Slots) -> dict[str, Lacks]:
    """By what is asked for, how much of it each of these machines has too little."""
    lacks: dict[str, Lacks] = {}
    for name, amount in _asked(shape).items():
        if name == GPU_SHARE:
            there = index.room.devices.most[: index.slots][slots].astype(np.int64)
        else:
            column = COLUMNS.index(name) if name in COLUMNS else index.extra_column(name)
            there = np.zeros(len(slots), dtype=np.int64)
            if column is not None:
                there = np.maximum(index.free[column, slots], 0).astype(np.int64)
        lacks[name] = np.maximum(amount - there, 0)
    return lacks


def _removed(index: MachineIndex, shape: Shape) -> dict[Reason, Mask]:
    left = index.present[: index.slots].copy()
    removed: dict[Reason, Mask] = {}
    for predicate in PREDICATES:
        passed = predicate.test(index, shape, index.everywhere)
        if passed is None:
            continue
        fallen = left & ~passed
        if fallen.any():
            removed[predicate.reason] = fallen
            left &= passed
    return removed


def _detail(index: MachineIndex, shape: Shape, reason: Reason, lost: Mask) -> str:
    rules = shape.constraints
    match reason:
        case Reason.OTHER_CLUSTER:
            return f"no machine in cluster {' or '.join(rules.clusters)}"
        case Reason.OTHER_ZONE:
            return f"no machine in zone {' or '.join(rules.zones)}"
        case Reason.LABEL_MISSING:
            return _label_detail(index, shape, lost)
        case Reason.TAINTED:
            return _taint_detail(index, shape, lost)
        case Reason.COOLING_DOWN:
            return f"refused too often lately by cluster {' and '.join(sorted(shape.cooling))}"
        case Reason.UNREACHABLE:
            return f"machines that would do but are silent: {np.count_nonzero(lost)}"
        case Reason.CORDONED:
            return f"machines that would do but are cordoned: {np.count_nonzero(lost)}"
        case Reason.ANTI_AFFINITY:
            return _apart_detail(shape)
        case Reason.TOO_MANY_PER_MACHINE:
            return f"at most {rules.max_per_machine} of service {rules.service} on a machine"
        case _ if reason in _BETWEEN:
            return _between_detail(shape, reason)
        case _:
            return _room_detail(index, shape, reason, lost)


def _room_detail(index: MachineIndex, shape: Shape, reason: Reason, lost: Mask) -> str:
    if reason is Reason.NO_ROOM_GPU and shape.gpu_milli:
        there = int(index.room.devices.most[: index.slots][lost].max())
        return f"largest free share of a gpu {there} < {shape.gpu_milli}"
    if reason in _COLUMN_OF:
        column = _COLUMN_OF[reason]
        return _largest(index, COLUMNS[column], column, shape.resources.vector()[column], lost)
    details = []
    for name, amount in sorted(shape.resources.extra.items()):
        column_of_extra = index.extra_column(name)
        if column_of_extra is None:
            details.append(f"no machine has {name}")
        elif amount and (index.free[column_of_extra, : index.slots][lost] < amount).any():
            details.append(_largest(index, name, column_of_extra, amount, lost))
    return ", ".join(details)


def _largest(index: MachineIndex, name: str, column: int, amount: int, lost: Mask) -> str:
    """The largest single machine, never a sum: a task cannot use two."""
    there = int(index.free[column, : index.slots][lost].max())
    return f"largest free {name} {there} < {amount}"


def _label_detail(index: MachineIndex, shape: Shape, lost: Mask) -> str:
    at = np.flatnonzero(lost)
    for term in shape.constraints.labels:
        if not meets(index, term, at).any():
            return f"no machine has label {_in_words(term)}"
    return "no machine has all the labels asked for"


def _in_words(term: LabelTerm) -> str:
    if term.operator in (Operator.EXISTS, Operator.NOT_EXISTS):
        return f"{term.key} {term.operator}"
    return f"{term.key} {term.operator} {' or '.join(term.values)}"


def _taint_detail(index: MachineIndex, shape: Shape, lost: Mask) -> str:
    at = np.flatnonzero(lost)
    counted = {
        mark: int(np.count_nonzero(index.bears_any([mark], at)))
        for mark in not_tolerated(index, shape)
    }
    mark = max(sorted(counted), key=lambda one: counted[one])
    return f"taint {mark.key}={mark.value} is not tolerated"


def _between_detail(shape: Shape, reason: Reason) -> str:
    """The rules over domains that give this reason."""
    rules, said = shape.constraints, []
    match reason:
        case Reason.NO_SUCH_DOMAIN:
            said = [f"machines in no {_of_a(over)}" for over in rules.domains_needed()]
        case Reason.UNEVEN:
            said = [
                f"a {_of_a(even.over)} would have more than {even.max_skew} of service"
                f" {rules.service} beyond the one that has fewest"
                for even in rules.even
                if even.required
            ]
        case Reason.NOT_NEAR:
            said = [
                f"no task of service {near.service} of team {shape.team} in the same"
                f" {_of_a(near.over)}"
                for near in rules.near
                if near.required
            ]
        case _:
            said = [
                f"at most {limit.tasks} of service {rules.service} in a {_of_a(limit.over)}"
                for limit in rules.limits
                if TOO_MANY.get(limit.over, Reason.TOO_MANY_PER_VALUE) is reason
            ]
    return ", ".join(said)


def _of_a(over: str) -> str:
    """`rack`, or `value of label disk`."""
    kind, colon, key = over.partition(":")
    return f"value of {kind} {key}" if colon else over


def _apart_detail(shape: Shape) -> str:
    rules = shape.constraints
    shunned = [f"service {name}" for name in rules.anti_affinity]
    shunned += [f"service {rule.service} (same {_of_a(rule.over)})" for rule in rules.apart]
    if shunned:
        return f"kept apart from {' and '.join(shunned)} of team {shape.team}"
    return f"kept apart by tasks that shun service {shape.constraints.service}"
