"""How a label compares with what a task wants: as number, version or list. Knows no machines."""

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

CACHED_MAX = 4_096
REQUIREMENTS_MAX = 8
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?")
_VERSION = re.compile(
    r"v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,5})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)
_REQUIREMENT = re.compile(r"(=|==|!=|>=|>|<=|<|~>)?\s*(\S+)")
_STRICT_PARTS = 3

Order = tuple[tuple[int, ...], tuple[tuple[int, int, str], ...]]


def number(text: str) -> Decimal | None:
    """The number written there, None when it is none; exponents and words are none."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def in_order(there: str, operator: str, wanted: str) -> bool:
    """`there` < `wanted` and so on. Against a number only numbers count, and compare as numbers;
    anything else compares as text, character by character."""
    number_wanted = number(wanted)
    if number_wanted is None:
        return holds((there > wanted) - (there < wanted), operator)
    number_there = number(there)
    if number_there is None:
        return False
    return holds((number_there > number_wanted) - (number_there < number_wanted), operator)


def holds(sign: int, operator: str) -> bool:
    """Does a comparison that came out below, at or above zero meet the operator?"""
    match operator:
        case "<":
            return sign < 0
        case "<=":
            return sign <= 0
        case ">":
            return sign > 0
        case ">=":
            return sign >= 0
        case "!=":
            return sign != 0
    return sign == 0


@dataclass(frozen=True, slots=True)
class Version:
    """`1.2.3-beta.1`: numbers, then what marks it as coming before the plain one. What follows a
    plus sign says nothing about order (semver.org, 2.0.0, section 10)."""

    parts: tuple[int, ...]
    before: tuple[str, ...]

    def order(self) -> Order:
        """Greater for what is later (semver.org, 2.0.0, section 11)."""
        parts = self.parts
        while parts and not parts[-1]:
            parts = parts[:-1]
        marks = tuple((0, int(m), "") if m.isdigit() else (1, 0, m) for m in self.before)
        # Without marks it comes after every one with them.
        return parts, marks or ((2, 0, ""),)

    def base(self) -> tuple[int, ...]:
        """The numbers, equal for 1.2 and 1.2.0."""
        return Version(self.parts, ()).order()[0]


@lru_cache(maxsize=CACHED_MAX)
def version(text: str) -> Version | None:
    """The version written there, None when it is none."""
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        return None
    parts = tuple(int(part) for part in found[1].split("."))
    before = tuple(found[2].split(".")) if found[2] else ()
    return Version(parts, before) if all(before) else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One comparison of a range such as `>= 1.0, < 1.4`."""

    operator: str
    wanted: Version

    def met_by(self, there: Version, *, strict: bool) -> bool:
        """`strict`: in the order of semver alone. Otherwise a version with marks meets a range only
        where the range names marks of the same version."""
        marked = not strict and self.operator not in ("=", "==", "!=") and bool(there.before)
        if marked and not (self.wanted.before and there.base() == self.wanted.base()):
            return False
        if self.operator == "~>":
            # All numbers but the last one named are the same.
            fixed = len(self.wanted.parts) - 1
            padded = there.parts + (0,) * fixed
            if padded[:fixed] != self.wanted.parts[:fixed]:
                return False
            return there.order() >= self.wanted.order()
        mine, its = there.order(), self.wanted.order()
        return holds((mine > its) - (mine < its), self.operator)


@lru_cache(maxsize=CACHED_MAX)
def requirements(text: str, *, strict: bool) -> tuple[Requirement, ...]:
    """The comparisons of a range, all of which must hold. Raises ValueError, fit to be shown."""
    written = text.split(",")
    if len(written) > REQUIREMENTS_MAX:
        raise ValueError(f"a range must have at most {REQUIREMENTS_MAX} comparisons")
    found = []
    for one in written:
        parsed = _REQUIREMENT.fullmatch(one.strip())
        wanted = None if parsed is None else version(parsed[2])
        if parsed is None or wanted is None:
            raise ValueError("a range must look like '>= 1.2, < 2.0'")
        if strict and parsed[1] == "~>":
            raise ValueError("semver knows no '~>': write '>= 1.2.0, < 2.0.0'")
        found.append(Requirement(parsed[1] or "=", wanted))
    return tuple(found)


def in_range(there: str, wanted: str, *, strict: bool) -> bool:
    """True when the label is a version within the range; `strict`: one of three numbers, in the
    order of semver."""
    found = version(there)
    if found is None or (strict and len(found.parts) != _STRICT_PARTS):
        return False
    return all(one.met_by(found, strict=strict) for one in requirements(wanted, strict=strict))


def listed(text: str) -> frozenset[str]:
    """The entries of a label that lists several, between commas."""
    return frozenset(part.strip() for part in text.split(","))
