"""Shapes: what placement sees of a task, and the digest under which equal tasks are one."""

import hashlib
from typing import NamedTuple

from domain.constraint import Constraints
from domain.task import TaskSpec


class ShapeKey(NamedTuple):
    """Hashable; equal for tasks that one round cannot tell apart (rules bind within a team)."""

    team: str
    vector: tuple[int, int, int, int, int]
    extra: tuple[tuple[str, int], ...]
    constraints: Constraints


def shape_key(spec: TaskSpec) -> ShapeKey:
    """The key under which equal tasks collapse within a round."""
    resources = spec.resources
    extra = tuple(sorted(resources.extra.items())) if resources.extra else ()
    return ShapeKey(spec.team, resources.vector(), extra, spec.constraints)


def shape_digest(spec: TaskSpec) -> str:
    """Short name of the demand (resources and constraints), for cool-downs; the team is no part."""
    key = shape_key(spec)
    text = repr((key.vector, key.extra)) + spec.constraints.model_dump_json(exclude_defaults=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
