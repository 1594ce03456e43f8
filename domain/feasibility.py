"""Whether any machine of the fleet, empty, could ever hold a task. Ignores what is free."""

from collections.abc import Sequence

from domain.machine import MachineClass
from domain.reasons import RESOURCE_REASON, Reason
from domain.resources import COLUMNS, Resources
from domain.task import TaskSpec


def never_fits(spec: TaskSpec, classes: Sequence[MachineClass]) -> dict[Reason, int] | None:
    """Machines lost per reason when none could ever hold the task, each at its first reason.

    None when one could, and for an empty fleet: what is not there yet refuses nothing.
    """
    lost: dict[Reason, int] = {}
    for machine_class in classes:
        reason = refusal_of(spec, machine_class)
        if reason is None:
            return None
        lost[reason] = lost.get(reason, 0) + machine_class.machines
    return dict(sorted(lost.items(), key=lambda item: -item[1])) or None


def refusal_of(spec: TaskSpec, machine_class: MachineClass) -> Reason | None:
    """The first reason for which a machine of this class, empty, could not hold the task."""
    rules = spec.constraints
    if rules.clusters and machine_class.cluster not in rules.clusters:
        return Reason.OTHER_CLUSTER
    if rules.zones and machine_class.zone not in rules.zones:
        return Reason.OTHER_ZONE
    if not all(term.matches(machine_class.labels) for term in rules.labels):
        return Reason.LABEL_MISSING
    for taint in machine_class.taints:
        if not any(toleration.tolerates(taint) for toleration in rules.tolerations):
            return Reason.TAINTED
    shortage = first_shortage(spec.resources, machine_class.capacity)
    if shortage is not None:
        return shortage
    lacking = any(_lacks(machine_class, over) for over in rules.domains_needed())
    return Reason.NO_SUCH_DOMAIN if lacking else None


def first_shortage(asked: Resources, room: Resources) -> Reason | None:
    """The reason of the first resource, in the order of COLUMNS, of which `room` has too little."""
    for column, wanted, there in zip(COLUMNS, asked.vector(), room.vector(), strict=True):
        if wanted > there:
            return RESOURCE_REASON[column]
    short = any(amount > room.extra.get(name, 0) for name, amount in asked.extra.items())
    return Reason.NO_ROOM_EXTRA if short else None


def nearest_miss(spec: TaskSpec, classes: Sequence[MachineClass]) -> str:
    """What the fleet lacks: `largest cpu_milli 8000 < 12000`, or the rule that nothing meets."""
    lost = never_fits(spec, classes)
    if lost is None:
        return ""
    barred = {
        Reason.OTHER_CLUSTER: f"no machine in cluster {_either(spec.constraints.clusters)}",
        Reason.OTHER_ZONE: f"no machine in zone {_either(spec.constraints.zones)}",
        Reason.LABEL_MISSING: "no machine has all the labels asked for",
        Reason.TAINTED: "every machine left has a taint that is not tolerated",
        Reason.NO_SUCH_DOMAIN: "no machine left is in a "
        + " and a ".join(spec.constraints.domains_needed()),
    }
    # Machines that fail only for size are the nearest, then those that passed most of the rules.
    sizes = [c for c in classes if refusal_of(spec, c) not in barred]
    if not sizes:
        return next(words for reason, words in reversed(barred.items()) if reason in lost)
    wanted = dict(zip(COLUMNS, spec.resources.vector(), strict=True)) | spec.resources.extra
    largest = {name: max(_amount(c.capacity, name) for c in sizes) for name in wanted}
    misses = [f"largest {n} {largest[n]} < {w}" for n, w in wanted.items() if largest[n] < w]
    return ", ".join(misses) or "no machine has enough of all of it at once"


def _lacks(machine_class: MachineClass, over: str) -> bool:
    """Machines of the class are in no such domain. Of racks a class says nothing."""
    if over == "zone":
        return not machine_class.zone
    _, colon, key = over.partition(":")
    return bool(colon) and key not in machine_class.labels


def _amount(capacity: Resources, name: str) -> int:
    return int(getattr(capacity, name)) if name in COLUMNS else capacity.extra.get(name, 0)


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)
