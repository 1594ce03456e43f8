"""Pending tasks collapsed into shapes: one question to the index for all equal tasks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from domain.constraint import Constraints
from domain.fleet import PendingTask
from domain.resources import Resources
from domain.task import TaskSpec
from placement.index import PACKED
from placement.neighbours import Neighbour, neighbour_of

Cooling = Mapping[str, frozenset[str]]
"""By shape digest, the clusters that have lately refused that shape too often."""
NOTHING_COOLS: Cooling = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """What equal tasks ask of a machine. Two shapes are one when they are the same object."""

    team: str
    """Of one of its tasks; a difference only where a rule between tasks binds it to the team."""
    resources: Resources
    constraints: Constraints
    neighbour: Neighbour | None
    cooling: frozenset[str]
    packed: npt.NDArray[np.int32]
    """The first of the resources, as a column beside those of the index."""


def shape_of(spec: TaskSpec, cooling: frozenset[str] = frozenset()) -> Shape:
    """The shape of one task."""
    return Shape(
        team=spec.team,
        resources=spec.resources,
        constraints=spec.constraints,
        neighbour=neighbour_of(spec),
        cooling=cooling,
        packed=np.array(spec.resources.vector()[:PACKED], dtype=np.int32)[:, np.newaxis],
    )


def shapes_of(pending: Iterable[PendingTask], cooling: Cooling = NOTHING_COOLS) -> list[Shape]:
    """Each task's shape: one and the same object for tasks that placement cannot tell apart."""
    known: dict[tuple[str, str], Shape] = {}
    of_any_team: dict[str, Shape] = {}
    shapes = []
    for task in pending:
        shape = of_any_team.get(task.shape) or known.get((task.shape, task.team))
        if shape is None:
            shape = shape_of(task.spec, cooling.get(task.shape, frozenset()))
            if shape.neighbour is None:
                of_any_team[task.shape] = shape
            else:
                known[task.shape, task.team] = shape
        shapes.append(shape)
    return shapes
