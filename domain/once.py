"""Keys that stand twice in one object of a JSON text. Knows nothing of what the keys mean."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from domain.misfit import dotted


class _Twice(dict[str, Any]):
    """An object in which `key` stands more than once."""

    key = ""


def repeated_key(text: str | bytes) -> str:
    """Where a key stands twice: `labels[0].key`, counted from 0; empty where none does.

    JSON leaves open what such an object means (RFC 8259, section 4), and readers that take the
    first and the last disagree about one text. The text must be JSON.
    """
    seen: list[_Twice] = []

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        twice = _Twice(pairs)
        twice.key = next(name for name, count in Counter(n for n, _ in pairs).items() if count > 1)
        seen.append(twice)
        return twice

    # Numbers stay text: how large they are is asked elsewhere. The last one found is certain to be
    # still there: one is lost only with an object around it, which is found after it.
    whole = json.loads(
        text, object_pairs_hook=read, parse_int=str, parse_float=str, parse_constant=str
    )
    return dotted([*_way(whole, seen[-1]), seen[-1].key]) if seen else ""


def _way(there: Any, wanted: _Twice) -> list[str | int]:
    """The keys and indexes that lead from one thing to an object in it; empty: none, or itself."""
    parts: Iterable[tuple[str | int, Any]]
    parts = there.items() if isinstance(there, dict) else enumerate(there)
    for name, part in parts:
        if part is wanted:
            return [name]
        if isinstance(part, dict | list) and (further := _way(part, wanted)):
            return [name, *further]
    return []
