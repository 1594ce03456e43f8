"""Where a task may run beyond having room: clusters, zones, labels, taints, neighbours."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, Field, StringConstraints, model_validator

from domain.compare import in_order, in_range, listed, requirements
from domain.ids import Name
from domain.misfit import DOMAIN_PATTERN
from domain.pattern import pattern

TERMS_MAX = 32
LABEL_VALUE_CHARS_MAX = 253
DOMAIN_RULES_MAX = 8
"""Rules over domains of each kind that a task may have."""
TASKS_PER_DOMAIN_MAX = 10_000
OVER_CHARS_MAX = 69


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


Over = Annotated[str, StringConstraints(pattern=DOMAIN_PATTERN, max_length=OVER_CHARS_MAX)]
"""Which machines count as one *domain*: `machine`, `rack`, `zone`, or `label:NAME`, all machines
with the same value of a label. A machine without rack, zone or label is in no domain."""


class Near(BaseModel, frozen=True):
    """Share a domain with a task of a service of the same team. Of its own service the first task
    may go anywhere."""

    service: Name
    over: Over = "machine"
    required: bool = True
    """False: a preference, which counts twice as much as how well the machine is packed."""


class Apart(BaseModel, frozen=True):
    """Share no domain with any task of a service of the same team, whichever comes first."""

    service: Name
    over: Over

    @model_validator(mode="after")
    def _machines_have_a_field_of_their_own(self) -> Self:
        if self.over == "machine":
            raise ValueError("over machines is written with anti_affinity")
        return self


class Limit(BaseModel, frozen=True):
    """At most so many tasks of the task's own service in one domain; 1 over a label: every task
    has a value of its own."""

    over: Over
    tasks: int = Field(default=1, ge=1, le=TASKS_PER_DOMAIN_MAX)

    @model_validator(mode="after")
    def _machines_have_a_field_of_their_own(self) -> Self:
        if self.over == "machine":
            raise ValueError("over machines is written with max_per_machine")
        return self


class Even(BaseModel, frozen=True):
    """The task's domain then has at most `max_skew` tasks of its service more than the domain that
    has fewest. What counts as a domain, and what is counted there, are the machines that the task's
    own rules (clusters, zones, labels) allow."""

    over: Over
    max_skew: int = Field(default=1, ge=1, le=TASKS_PER_DOMAIN_MAX)
    min_domains: int = Field(default=1, ge=1, le=TASKS_PER_DOMAIN_MAX)
    """While there are fewer domains, the fewest count as none."""
    required: bool = True
    """False: a preference for the domains that have fewest, as strong as that of `Near`."""


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
    near: tuple[Near, ...] = Field(default=(), max_length=DOMAIN_RULES_MAX)
    apart: tuple[Apart, ...] = Field(default=(), max_length=DOMAIN_RULES_MAX)
    limits: tuple[Limit, ...] = Field(default=(), max_length=DOMAIN_RULES_MAX)
    even: tuple[Even, ...] = Field(default=(), max_length=DOMAIN_RULES_MAX)

    @model_validator(mode="after")
    def _service_rules_need_a_service(self) -> Self:
        asked = {
            "max_per_machine": self.max_per_machine is not None,
            "spread": self.spread is not Spread.NONE,
            "limits": bool(self.limits),
            "even": bool(self.even),
        }
        for name, there in asked.items():
            if self.service is None and there:
                raise ValueError(f"{name} needs service")
        return self

    @property
    def over_domains(self) -> bool:
        """True when some rule looks beyond the machine, so that tasks far apart matter."""
        return bool(self.near or self.apart or self.limits or self.even)

    def domains_needed(self) -> tuple[str, ...]:
        """Over what the machine must be in a domain, each once."""
        near = [rule.over for rule in self.near if rule.required]
        even = [rule.over for rule in self.even if rule.required]
        return tuple(dict.fromkeys([*near, *even, *(limit.over for limit in self.limits)]))

    @property
    def shuns(self) -> tuple[str, ...]:
        """What the task wants not beside it, in words that a claim keeps: `web` on its machine,
        `web@rack` in its rack. In alphabetical order, each once."""
        wider = (f"{rule.service}@{rule.over}" for rule in self.apart)
        return tuple(sorted({*self.anti_affinity, *wider}))
