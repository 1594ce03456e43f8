"""Where a task may run beyond having room: clusters, zones, labels, taints, neighbours."""

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, Field, model_validator

from domain.compare import in_order, in_range, listed, requirements
from domain.ids import Name
from domain.pattern import pattern

TERMS_MAX = 32
LABEL_VALUE_CHARS_MAX = 253


class Operator(StrEnum):
    """How a label of a machine is compared."""

    EQUAL = "="
    NOT_EQUAL = "!="
    IN = "in"
    NOT_IN = "not in"
    EXISTS = "exists"
    NOT_EXISTS = "not exists"
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    VERSION = "version"
    """Within a range such as `>= 1.2, < 2` or `~> 1.2`; a version with marks such as `2.0-beta`
    only where the range names marks of the same version."""
    SEMVER = "semver"
    """Within a range, in the order of semver, marks included."""
    REGEXP = "regexp"
    """Somewhere in the label (`domain.pattern`); `^` and `$` tie it to the edges."""
    CONTAINS = "contains"
    """The label lists (between commas) every one of the values."""
    CONTAINS_ANY = "contains any"
    """The label lists at least one of the values."""


_ALONE = (Operator.EXISTS, Operator.NOT_EXISTS)
_LISTING = (Operator.CONTAINS, Operator.CONTAINS_ANY)
_SEVERAL = (Operator.IN, Operator.NOT_IN, *_LISTING)
_RANGES = (Operator.VERSION, Operator.SEMVER)


class LabelTerm(BaseModel, frozen=True):
    """One condition on a label. A missing label meets !=, not in and not exists, and no other."""

    key: Name
    operator: Operator = Operator.EQUAL
    values: tuple[str, ...] = Field(default=(), max_length=TERMS_MAX)

    @model_validator(mode="after")
    def _values_suit_the_operator(self) -> Self:
        if self.operator in _ALONE and self.values:
            raise ValueError(f"values must be empty with the operator {self.operator}")
        if self.operator not in (*_ALONE, *_SEVERAL) and len(self.values) != 1:
            raise ValueError(
                f"values must hold exactly one value with the operator {self.operator}"
            )
        if self.operator in _SEVERAL and not self.values:
            raise ValueError(f"values must not be empty with the operator {self.operator}")
        if any(len(value) > LABEL_VALUE_CHARS_MAX for value in self.values):
            raise ValueError(f"a value must have at most {LABEL_VALUE_CHARS_MAX} characters")
        if self.operator in _RANGES:
            requirements(self.values[0], strict=self.operator is Operator.SEMVER)
        if self.operator is Operator.REGEXP:
            pattern(self.values[0])
        if self.operator in _LISTING and any("," in value for value in self.values):
            raise ValueError(f"a value must hold no comma with the operator {self.operator}")
        return self

    def matches(self, labels: dict[str, str]) -> bool:
        """True when a machine with these labels meets the condition."""
        there = labels.get(self.key)
        match self.operator:
            case Operator.NOT_EXISTS:
                return there is None
            case Operator.NOT_EQUAL | Operator.NOT_IN:
                return there not in self.values
        return there is not None and self.accepts(there)

    def accepts(self, there: str) -> bool:
        """True when a label with this value meets the condition; in time linear in its length."""
        match self.operator:
            case Operator.EXISTS:
                return True
            case Operator.NOT_EXISTS:
                return False
            case Operator.EQUAL | Operator.IN:
                return there in self.values
            case Operator.NOT_EQUAL | Operator.NOT_IN:
                return there not in self.values
            case Operator.VERSION | Operator.SEMVER:
                strict = self.operator is Operator.SEMVER
                return in_range(there, self.values[0], strict=strict)
            case Operator.REGEXP:
                return pattern(self.values[0]).found_in(there)
            case Operator.CONTAINS:
                return listed(there).issuperset(value.strip() for value in self.values)
            case Operator.CONTAINS_ANY:
                return not listed(there).isdisjoint(value.strip() for value in self.values)
        return in_order(there, self.operator, self.values[0])


class TaintEffect(StrEnum):
    """What a taint does to a task that does not tolerate it."""

    NO_SCHEDULE = "NoSchedule"


class Taint(BaseModel, frozen=True):
    """A mark on a machine that repels every task without a matching toleration."""

    key: Name
    value: str = Field(default="", max_length=LABEL_VALUE_CHARS_MAX)
    effect: TaintEffect = TaintEffect.NO_SCHEDULE


class Toleration(BaseModel, frozen=True):
    """The exception to a taint; without a value it tolerates every value of the key."""

    key: Name
    value: str | None = Field(default=None, max_length=LABEL_VALUE_CHARS_MAX)

    def tolerates(self, taint: Taint) -> bool:
        """True when this taint does not repel the task."""
        return self.key == taint.key and self.value in (None, taint.value)


class Spread(StrEnum):
    """Over which domains tasks of one service are spread (a preference, not a rule)."""

    NONE = "none"
    MACHINE = "machine"
    ZONE = "zone"
    RACK = "rack"


class Constraints(BaseModel, frozen=True):
    """Every rule must hold. Empty means no rule."""

    clusters: tuple[Name, ...] = Field(default=(), max_length=TERMS_MAX)
    zones: tuple[Name, ...] = Field(default=(), max_length=TERMS_MAX)
    labels: tuple[LabelTerm, ...] = Field(default=(), max_length=TERMS_MAX)
    tolerations: tuple[Toleration, ...] = Field(default=(), max_length=TERMS_MAX)
    service: Name | None = None
    """The service this task counts to, for the three rules below; bound to its team."""
    max_per_machine: int | None = Field(default=None, ge=1, le=10_000)
    """At most so many tasks of the same team and service on one machine; needs `service`."""
    anti_affinity: tuple[Name, ...] = Field(default=(), max_length=TERMS_MAX)
    """Services of the same team that must not be on the machine."""
    spread: Spread = Spread.NONE

    @model_validator(mode="after")
    def _service_rules_need_a_service(self) -> Self:
        if self.service is None and self.max_per_machine is not None:
            raise ValueError("max_per_machine needs service")
        if self.service is None and self.spread is not Spread.NONE:
            raise ValueError("spread needs service")
        return self
