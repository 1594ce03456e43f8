"""What does not fit, in words: which field, what is allowed, and what was given instead.

Knows pydantic's kinds of errors, so that nobody else has to read its English or its patterns.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

GIVEN_CHARS_MAX = 60
SHOWN_MAX = 3
_PARTS_OF_REQUESTS = ("body", "query", "path", "header")

NAME_PATTERN = r"^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
DOMAIN_PATTERN = r"^(?:machine|rack|zone|label:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)$"
PATTERNS: Mapping[str, str] = {
    NAME_PATTERN: "must be made of letters, digits, '.', '_' and '-', "
    "with a letter or digit at either end",
    VARIABLE_PATTERN: "must be made of letters, digits and '_', not beginning with a digit",
    DOMAIN_PATTERN: "must be machine, rack, zone or label:NAME",
}

_KINDS: Mapping[str, str] = {
    "missing": "is needed",
    "extra_forbidden": "is not known here",
    "string_type": "must be text",
    "string_unicode": "must be text in UTF-8",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "frozen_set_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of a size that a machine can hold",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}
_SAYS_IT_ALL = ("missing", "extra_forbidden", "value_error", "assertion_error")
"""What was given adds nothing to these, or stands in their text already."""


def told(error: ValidationError, names: Mapping[str, str] | None = None) -> str:
    """All of it in a line; `names` says what people call a field, such as `--api-port`."""
    found = [(field, message) for field, message in misfits(error.errors())]
    named = [((names or {}).get(field, field), message) for field, message in found]
    return in_a_line(named)


def in_a_line(found: Sequence[tuple[str, str]]) -> str:
    """The first few of them, and how many more there are."""
    shown = [
        f"{bare(field)}: {message}" if field else message for field, message in found[:SHOWN_MAX]
    ]
    more = [f"and {len(found) - SHOWN_MAX} more"] if len(found) > SHOWN_MAX else []
    return "; ".join(shown + more)


def bare(field: str) -> str:
    """`limit` for `query.limit`: people know what they have asked."""
    first, _, rest = field.partition(".")
    return rest if rest and first in _PARTS_OF_REQUESTS else field


def misfits(errors: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Field (dotted; empty for the whole) and message of each of pydantic's errors."""
    return [misfit(error) for error in errors if not _follows_from_others(error, errors)]


def misfit(error: Mapping[str, Any]) -> tuple[str, str]:
    """Field and message of one of pydantic's errors."""
    where = list(error.get("loc", ()))
    field = dotted(where[1:] if where[:1] == ["body"] else where)
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "string_pattern_mismatch":
        message = PATTERNS.get(context["pattern"], f"must look like {context['pattern']}")
    elif kind in ("enum", "literal_error"):
        expected = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        message = f"must be one of {expected}"
    elif kind in ("too_short", "string_too_short") and context["min_length"] == 1:
        return field, "must not be empty"
    elif kind in _KINDS:
        message = _KINDS[kind].format(**context)
    else:
        message = str(error.get("msg", "does not fit")).removeprefix("Value error, ")
    if kind in _SAYS_IT_ALL:
        return field, message
    if field.endswith(".[key]"):
        # The name itself does not fit, and stands before that mark.
        return field.removesuffix(".[key]"), f"the name {message}"
    return field, f"{message}, not {given(error.get('input'))}"


def dotted(way: Sequence[str | int]) -> str:
    """Keys and places on the way to a field: `constraints.labels[0].key`, counted from 0."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in way)
    return "".join(parts).removeprefix(".")


def _follows_from_others(error: Mapping[str, Any], errors: Sequence[Mapping[str, Any]]) -> bool:
    """Said of a whole only because a part of it does not fit."""
    if error["type"] == "default_factory_not_called":
        return True
    where = tuple(error["loc"])
    inner = (tuple(other["loc"]) for other in errors)
    return error["type"] == "too_short" and any(
        len(loc) > len(where) and loc[: len(where)] == where for loc in inner
    )


def given(value: object) -> str:
    """What was given, short enough to be shown, and without showing what is inside."""
    match value:
        case Mapping():
            return "an object"
        case list() | tuple():
            return f"a list of {len(value)}"
        case str() if len(value) > GIVEN_CHARS_MAX:
            return f"a text of {len(value)} characters"
        case str() | bool() | int() | None:
            written = json.dumps(value, ensure_ascii=False)
        case _:
            written = str(value)
    return written if len(written) <= 2 * GIVEN_CHARS_MAX else f"{written[:GIVEN_CHARS_MAX]}..."
