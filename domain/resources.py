"""Quantities of machine resources: integers in base units, and how people write them."""

import math
import re
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from domain.ids import Name
from domain.misfit import given as shown

QUANTITY_MAX = 2**31 - 1
"""The index keeps 32-bit columns, so no quantity may exceed this many base units."""
EXTRA_NAMES_MAX = 16

COLUMNS = ("cpu_milli", "memory_mib", "gpu", "disk_mib", "net_mbps")
"""The order of the standard resources wherever they stand as a vector."""

_SUFFIX = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "K": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([A-Za-z]{0,2})", re.ASCII)

# What people write, the base unit it becomes, and how many of the written unit make one.
_WRITTEN = {
    "cpu": ("cpu_milli", Fraction(1, 1000)),
    "memory": ("memory_mib", Fraction(2**20)),
    "disk": ("disk_mib", Fraction(2**20)),
    "net": ("net_mbps", Fraction(10**6)),
}
WRITTEN_NAMES = tuple(_WRITTEN)


def parse_quantity(written: object, unit: Fraction) -> int:
    """`written` in whole multiples of `unit`, rounded up. ValueError on anything but a quantity."""
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        # A ValueError, because pydantic turns only that into an answer that names the field.
        raise ValueError("must be a number or a text such as 500m, 1Gi or 1G")
    if isinstance(written, float) and not math.isfinite(written):
        raise ValueError("must be a finite number")
    match = _QUANTITY.fullmatch(str(written).strip())
    if match is None or match[2] not in _SUFFIX:
        raise ValueError(
            "must be a number of at least 0 with a suffix of m, k, M, G, T, Ki, Mi, Gi, Ti"
        )
    quantity = math.ceil(Fraction(match[1]) * _SUFFIX[match[2]] / unit)
    if quantity > QUANTITY_MAX:
        raise ValueError(f"must be at most {QUANTITY_MAX} base units")
    return quantity


Quantity = Field(default=0, ge=0, le=QUANTITY_MAX, strict=True)


class Resources(BaseModel, frozen=True):
    """A vector of quantities. Accepts `cpu`, `memory`, `disk`, `net` as people write them."""

    cpu_milli: int = Quantity
    memory_mib: int = Quantity
    gpu: int = Quantity
    disk_mib: int = Quantity
    net_mbps: int = Quantity
    extra: dict[Name, Annotated[int, Field(ge=0, le=QUANTITY_MAX, strict=True)]] = Field(
        default_factory=dict, max_length=EXTRA_NAMES_MAX
    )

    @model_validator(mode="before")
    @classmethod
    def _as_people_write(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        read = dict(given)
        for written, (base, unit) in _WRITTEN.items():
            if written in read:
                if base in read:
                    raise ValueError(f"{written} and {base} name the same resource: give one")
                try:
                    read[base] = parse_quantity(read.pop(written), unit)
                except ValueError as error:
                    raise ValueError(f"{written}: {error}, not {shown(given[written])}") from None
        return read

    def vector(self) -> tuple[int, int, int, int, int]:
        """The standard resources in the order of COLUMNS."""
        return (self.cpu_milli, self.memory_mib, self.gpu, self.disk_mib, self.net_mbps)

    def fits(self, room: Self) -> bool:
        """True when every quantity asked here is there in `room`."""
        return all(a <= b for a, b in zip(self.vector(), room.vector(), strict=True)) and all(
            amount <= room.extra.get(name, 0) for name, amount in self.extra.items()
        )

    def short_of(self, room: Self) -> dict[str, int]:
        """Per resource that does not fit, by how much `room` is too small."""
        pairs = [*zip(COLUMNS, self.vector(), room.vector(), strict=True)]
        pairs += [(name, amount, room.extra.get(name, 0)) for name, amount in self.extra.items()]
        return {name: asked - there for name, asked, there in pairs if asked > there}

    def plus(self, other: Self) -> Self:
        """The sum, resource by resource."""
        return self._combine(other, 1)

    def minus(self, other: Self) -> Self:
        """The difference, resource by resource; a result below zero is our bug."""
        return self._combine(other, -1)

    def _combine(self, other: Self, sign: int) -> Self:
        names = {**self.extra, **other.extra}
        extra = {n: self.extra.get(n, 0) + sign * other.extra.get(n, 0) for n in names}
        summed = {
            column: a + sign * b
            for column, a, b in zip(COLUMNS, self.vector(), other.vector(), strict=True)
        }
        assert all(amount >= 0 for amount in [*summed.values(), *extra.values()]), (
            self,
            other,
        )
        return self.model_copy(update={**summed, "extra": {n: v for n, v in extra.items() if v}})
