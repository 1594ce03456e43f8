"""Between columns and domain models, in both directions. Knows no statement."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from pydantic import TypeAdapter

from domain.attempt import Ending, Outcome
from domain.constraint import Taint
from domain.fleet import Vector
from domain.machine import MachineClass
from domain.resources import COLUMNS, Resources
from domain.retry import Spent
from domain.task import TaskSpec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPECS_CACHED_MAX = 20_000
_SPEC_CHARS_CACHED_MAX = 4_000
_MACHINE_TEXTS_CACHED_MAX = 10_000
_ENDING = TypeAdapter(Ending)
_OUTCOME = TypeAdapter(Outcome)
_TAINTS = TypeAdapter(tuple[Taint, ...])


def micros(at: datetime) -> int:
    """Microseconds since the epoch, exactly."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def instant(at: int) -> datetime:
    """The inverse of `micros`."""
    return _EPOCH + timedelta(microseconds=at)


def instant_or_none(at: int | None) -> datetime | None:
    """None stays None."""
    return None if at is None else instant(at)


def place_of(cluster: str, machine: str) -> str:
    """Names a machine in one text; neither name may hold a slash."""
    return f"{cluster}/{machine}"


def split_place(place: str) -> tuple[str, str]:
    """Cluster and machine of a place."""
    cluster, _, machine = place.partition("/")
    return cluster, machine


def extra_text(extra: Mapping[str, int]) -> str | None:
    """Named extra resources; None when there are none, which is nearly always."""
    return json.dumps(dict(extra), sort_keys=True) if extra else None


def read_extra(text: str | None) -> dict[str, int]:
    """The inverse of `extra_text`."""
    return dict(json.loads(text)) if text else {}


def resources_of(vector: Vector, extra: str | None) -> Resources:
    """Quantities out of columns."""
    amounts = dict(zip(COLUMNS, vector, strict=True))
    return Resources.model_validate({**amounts, "extra": read_extra(extra)})


def spec_text(spec: TaskSpec) -> str:
    """A specification as it is stored: every field, so that a changed default changes no task."""
    return TaskSpec.model_dump_json(spec)


def read_spec(text: str) -> TaskSpec:
    """The inverse of `spec_text`; small ones are remembered, for a row is read several times."""
    if len(text) > _SPEC_CHARS_CACHED_MAX:
        return TaskSpec.model_validate_json(text)
    return _small_spec(text)


@lru_cache(maxsize=_SPECS_CACHED_MAX)
def _small_spec(text: str) -> TaskSpec:
    return TaskSpec.model_validate_json(text)


def ending_text(ending: Ending) -> str:
    """An ending as it is stored and compared."""
    return ending.model_dump_json(exclude_defaults=True)


def read_ending(text: str | None) -> Ending | None:
    """The inverse of `ending_text`."""
    return None if text is None else _ENDING.validate_json(text)


def read_outcome(text: str | None) -> Outcome | None:
    """How a task ended, where it has."""
    return None if text is None else _OUTCOME.validate_json(text)


def read_spent(text: str) -> Spent:
    """The budgets used up so far."""
    return Spent() if text == "{}" else Spent.model_validate_json(text)


def neighbour_text(spec: TaskSpec) -> str | None:
    """What rules between tasks see of an attempt; None when no such rule can concern it."""
    rules = spec.constraints
    if rules.service is None and not rules.shuns:
        return None
    return json.dumps([spec.team, rules.service, rules.shuns])


@lru_cache(maxsize=_MACHINE_TEXTS_CACHED_MAX)
def read_labels(text: str) -> dict[str, str]:
    """Labels of a machine; shared between machines that have the same: never change them."""
    return dict(json.loads(text))


@lru_cache(maxsize=_MACHINE_TEXTS_CACHED_MAX)
def read_taints(text: str) -> tuple[Taint, ...]:
    """Taints of a machine."""
    return _TAINTS.validate_json(text)


def taints_text(taints: tuple[Taint, ...]) -> str:
    """The inverse of `read_taints`."""
    return _TAINTS.dump_json(taints).decode()


@lru_cache(maxsize=_MACHINE_TEXTS_CACHED_MAX)
def read_class(text: str) -> MachineClass:
    """A class of machines, its count not yet filled in."""
    return MachineClass.model_validate_json(text)
