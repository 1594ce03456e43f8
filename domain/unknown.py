"""Which fields of a body no model knows, at any depth: errors at the door, ignored inside."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from domain.resources import WRITTEN_NAMES, Resources

ALSO_READ: Mapping[type[BaseModel], frozenset[str]] = {Resources: frozenset(WRITTEN_NAMES)}
"""Names that a model's own reading accepts beside its fields."""


def unknown_fields(model: type[BaseModel], given: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of the fields in `given` that `model` would ignore."""
    if not isinstance(given, Mapping):
        return
    for name, value in given.items():
        if name not in model.model_fields:
            if name not in ALSO_READ.get(model, ()):
                yield f"{path}{name}"
            continue
        for inner in _models_of(model).get(name, ()):
            values = value if isinstance(value, list | tuple) else [value]
            for one in values:
                yield from unknown_fields(inner, one, f"{path}{name}.")


@cache
def _models_of(model: type[BaseModel]) -> dict[str, list[type[BaseModel]]]:
    """By field, the models that its values may be; looked up once for each model."""
    fields = model.model_fields.items()
    return {name: inner for name, field in fields if (inner := _models_in(field.annotation))}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
