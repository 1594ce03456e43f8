"""What tasks ask of machines: equal tasks are one shape, and a batch of tasks is columns of shapes.

Knows no machine and no index: the same batch may be asked of any.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from domain.constraint import Constraints, LabelTerm, Spread, Toleration
from domain.fleet import PendingTask
from domain.resources import COLUMNS, Resources
from domain.task import TaskSpec
from placement.devices import WHOLE_MILLI
from placement.neighbours import Neighbour, Presence

GPU_MODEL_LABEL = "gpu_model"
"""A machine says with this label which GPUs it has; a task names those that suit it by a label term
like any other (`LabelTerm(key=GPU_MODEL_LABEL, operator=Operator.IN, values=("A100", "H100"))`)."""

Column = npt.NDArray[np.int32]

Cooling = Mapping[str, frozenset[str]]
"""By shape digest, the clusters that have lately refused that shape too often."""
NOTHING_COOLS: Cooling = {}
NO_RULES = Constraints()
NOTHING = Resources()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """What equal tasks ask of a machine. Two shapes are one when they are the same object."""

    team: str
    """Of one of its tasks; a difference only where a rule between tasks binds it to the team."""
    resources: Resources
    constraints: Constraints
    neighbour: Neighbour | None
    cooling: frozenset[str]
    counted: tuple[Presence, ...] = ()
    """What a task of it counts for among its neighbours; its service, where it has one, first."""
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
    neighbour = None
    shuns = constraints.shuns
    if constraints.service is not None or shuns:
        neighbour = Neighbour(team, constraints.service, shuns)
    return Shape(
        team=team,
        resources=resources,
        constraints=constraints,
        neighbour=neighbour,
        counted=() if neighbour is None else tuple(neighbour.presences()),
        cooling=cooling,
        gpu_milli=gpu_milli,
    )


def shape_of(spec: TaskSpec, cooling: frozenset[str] = frozenset()) -> Shape:
    """The shape of one task. A specification knows whole devices only."""
    return shape_for(spec.resources, spec.constraints, team=spec.team, cooling=cooling)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a shape asks of a machine that does not change while a round assigns."""

    clusters: tuple[str, ...]
    zones: tuple[str, ...]
    labels: tuple[LabelTerm, ...]
    tolerations: tuple[Toleration, ...]
    cooling: frozenset[str]

    @classmethod
    def of(cls, shape: Shape) -> "Rule":
        """Equal for shapes that ask the same of machines."""
        rules = shape.constraints
        return cls(rules.clusters, rules.zones, rules.labels, rules.tolerations, shape.cooling)

    @property
    def shape(self) -> Shape:
        """A shape that asks for nothing else."""
        constraints = Constraints.model_construct(
            clusters=self.clusters,
            zones=self.zones,
            labels=self.labels,
            tolerations=self.tolerations,
        )
        return shape_for(NOTHING, constraints, cooling=self.cooling)


NO_RULE = Rule((), (), (), (), frozenset())


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Tasks in the order in which they are to be served, as codes of shapes, and the shapes as
    columns: what the engine works on."""

    shapes: tuple[Shape, ...]
    code: Column
    """int32 of shape (tasks,): each task's place in `shapes`."""
    band: Column | None
    """int32 of shape (tasks,), never falling: a band is served in full before the next one."""
    ask: Column
    """int32 of shape (standard resources, shapes)."""
    gpu_milli: Column
    rule: Column
    """Each shape's place in `rules`."""
    rules: tuple[Rule, ...]
    with_extras: frozenset[int]
    """Codes of the shapes that ask for named resources."""
    bound: frozenset[int]
    """Codes of the shapes that rules between tasks concern."""
    counts: npt.NDArray[np.bool_]
    """The same as a mask over the shapes."""
    shunning: frozenset[int]
    """Those of them that a neighbour can keep off a machine, whatever the neighbour wants."""
    spread: tuple[int, ...]
    """Those of them that are to be spread."""
    wide: npt.NDArray[np.bool_]
    """A mask over the shapes: those with rules that look beyond the machine."""
    lonely: frozenset[int]
    """Those of which the batch has one task, and no other of the same service."""

    def __len__(self) -> int:
        return len(self.code)

    @classmethod
    def of(cls, shapes: Sequence[Shape], bands: Sequence[int] | None = None) -> "Batch":
        """One entry per task; the same object again is the same shape again."""
        distinct = dict(zip(shapes, range(len(shapes)), strict=True))
        codes = dict(zip(distinct, range(len(distinct)), strict=True))
        code = np.fromiter(map(codes.__getitem__, shapes), np.int32, len(shapes))
        return cls.coded(tuple(distinct), code, bands)

    @classmethod
    def coded(
        cls, shapes: tuple[Shape, ...], code: Column, bands: Sequence[int] | None = None
    ) -> "Batch":
        """For one who has numbered the shapes already."""
        band = None if bands is None else np.array(bands, dtype=np.int32)
        assert band is None or (len(band) == len(code) and (np.diff(band) >= 0).all())
        rules: dict[Rule, int] = {}
        rule = [rules.setdefault(Rule.of(shape), len(rules)) for shape in shapes]
        spread = tuple(at for at, s in enumerate(shapes) if s.constraints.spread is not Spread.NONE)
        number = np.bincount(code, minlength=len(shapes)).tolist()
        of_service: Counter[Presence] = Counter()
        for at in spread:
            of_service[shapes[at].counted[0]] += number[at]
        vectors = [shape.resources.vector() for shape in shapes]
        return cls(
            shapes=shapes,
            code=code,
            band=band,
            ask=np.array(vectors, dtype=np.int32).reshape(-1, len(COLUMNS)).T.copy(),
            gpu_milli=np.array([shape.gpu_milli for shape in shapes], dtype=np.int32),
            rule=np.array(rule, dtype=np.int32),
            rules=tuple(rules),
            with_extras=_codes(shape.resources.extra for shape in shapes),
            bound=_codes(shape.neighbour for shape in shapes),
            counts=np.array([shape.neighbour is not None for shape in shapes], dtype=np.bool_),
            spread=spread,
            wide=np.array([shape.constraints.over_domains for shape in shapes], dtype=np.bool_),
            lonely=frozenset(at for at in spread if of_service[shapes[at].counted[0]] == 1),
            shunning=_codes(s.constraints.shuns or s.constraints.max_per_machine for s in shapes),
        )


def _codes(marked: Iterable[object]) -> frozenset[int]:
    return frozenset(code for code, mark in enumerate(marked) if mark)


def shapes_of(pending: Iterable[PendingTask], cooling: Cooling = NOTHING_COOLS) -> list[Shape]:
    """Each task's shape: one and the same object for tasks that placement cannot tell apart."""
    known: dict[tuple[str, str], Shape] = {}
    of_any_team: dict[str, Shape] = {}
    shapes = []
    for task in pending:
        shape = of_any_team.get(task.shape) or known.get((task.shape, task.team))
        if shape is None:
            shape = shape_of(task.spec, cooling.get(task.shape, frozenset()))
            if shape.neighbour is None and not shape.constraints.near:
                of_any_team[task.shape] = shape
            else:
                known[task.shape, task.team] = shape
        shapes.append(shape)
    return shapes
