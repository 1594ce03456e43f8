"""What tasks ask of machines: equal tasks are one shape, and a batch of tasks is columns of shapes.

Knows no machine and no index: the same batch may be asked of any.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from domain.constraint import Constraints
from domain.fleet import PendingTask
from domain.resources import Resources
from domain.task import TaskSpec
from placement.devices import WHOLE_MILLI
from placement.neighbours import Neighbour

GPU_MODEL_LABEL = "gpu_model"
"""A machine says with this label which GPUs it has; a task names those that suit it by a label term
like any other (`LabelTerm(key=GPU_MODEL_LABEL, operator=Operator.IN, values=("A100", "H100"))`)."""

Cooling = Mapping[str, frozenset[str]]
"""By shape digest, the clusters that have lately refused that shape too often."""
NOTHING_COOLS: Cooling = {}
NO_RULES = Constraints()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """What equal tasks ask of a machine. Two shapes are one when they are the same object."""

    team: str
    """Of one of its tasks; a difference only where a rule between tasks binds it to the team."""
    resources: Resources
    constraints: Constraints
    neighbour: Neighbour | None
    cooling: frozenset[str]
    gpu_milli: int = 0
    """A share of one device, 1..999 thousandths; then `resources.gpu` is 0. 0: no share."""

    @property
    def gpu_total_milli(self) -> int:
        """GPU time asked for in all, in thousandths of a device."""
        return self.resources.gpu * WHOLE_MILLI + self.gpu_milli


def shape_for(
    resources: Resources,
    constraints: Constraints = NO_RULES,
    *,
    team: str = "default",
    gpu_milli: int = 0,
    cooling: frozenset[str] = frozenset(),
) -> Shape:
    """A shape from its parts."""
    assert 0 <= gpu_milli < WHOLE_MILLI, gpu_milli
    assert not (gpu_milli and resources.gpu), "whole devices or a share of one, not both"
    bound = constraints.service is not None or constraints.anti_affinity
    return Shape(
        team=team,
        resources=resources,
        constraints=constraints,
        neighbour=Neighbour(team, constraints.service, constraints.anti_affinity)
        if bound
        else None,
        cooling=cooling,
        gpu_milli=gpu_milli,
    )


def shape_of(spec: TaskSpec, cooling: frozenset[str] = frozenset()) -> Shape:
    """The shape of one task. A specification knows whole devices only."""
    return shape_for(spec.resources, spec.constraints, team=spec.team, cooling=cooling)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Tasks in the order in which they are to be served, as codes of shapes.

    `code` is int32 of shape (tasks,), an index into `shapes`; `band`, where given, is int32 of the
    same length and never falls: every task of a band is served before any of a later one.
    """

    shapes: tuple[Shape, ...]
    code: npt.NDArray[np.int32]
    band: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.code)

    @classmethod
    def of(cls, shapes: Sequence[Shape], bands: Sequence[int] | None = None) -> "Batch":
        """One entry per task; the same object again is the same shape again."""
        codes: dict[Shape, int] = {}
        code = np.array([codes.setdefault(shape, len(codes)) for shape in shapes], dtype=np.int32)
        band = None if bands is None else np.array(bands, dtype=np.int32)
        assert band is None or (len(band) == len(code) and (np.diff(band) >= 0).all())
        return cls(tuple(codes), code, band)


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
