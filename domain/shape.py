"""Shapes: what placement sees of a task, and the digest under which equal tasks collapse into one."""

import hashlib

from pydantic import BaseModel

from domain.constraint import Constraints
from domain.resources import Resources
from domain.task import TaskSpec


class Demand(BaseModel, frozen=True):
    """The part of a task that decides where it may run; the same for all tasks of one shape."""

    resources: Resources
    constraints: Constraints = Constraints()


def demand_of(spec: TaskSpec) -> Demand:
    """What this task asks of a machine."""
    return Demand(resources=spec.resources, constraints=spec.constraints)


def demand_text(spec: TaskSpec) -> str:
    """Canonical JSON of the demand: equal texts for equal shapes, whatever the order of names."""
    resources = spec.resources
    if len(resources.extra) > 1:
        resources = resources.model_copy(update={"extra": dict(sorted(resources.extra.items()))})
    demand = Demand(resources=resources, constraints=spec.constraints)
    return demand.model_dump_json(exclude_defaults=True)


def text_digest(demand: str) -> str:
    """The shape digest of a canonical demand text."""
    return hashlib.blake2b(demand.encode(), digest_size=8).hexdigest()


def shape_digest(spec: TaskSpec) -> str:
    """Equal for tasks that placement cannot tell apart, apart from team, band and age."""
    return text_digest(demand_text(spec))
