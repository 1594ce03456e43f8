"""Room: a vector of quantities, added up by machine or by team. Knows neither."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from domain.fleet import Vector
from domain.resources import Resources
from store.mapping import read_extra


@dataclass(slots=True)
class Room:
    """A sum of quantities; may be negative while it is a difference."""

    vector: list[int] = field(default_factory=lambda: [0, 0, 0, 0, 0])
    extra: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of_row(cls, vector: Vector, extra: str | None) -> "Room":
        """What these columns hold."""
        return cls(list(vector), read_extra(extra))

    @classmethod
    def of(cls, resources: Resources) -> "Room":
        """What these resources are."""
        return cls(list(resources.vector()), dict(resources.extra))

    def add(self, other: "Room", sign: int = 1) -> None:
        """Take `other` in, or out with sign -1."""
        self.add_vector(other.vector, sign)
        for name, amount in other.extra.items():
            self.extra[name] = self.extra.get(name, 0) + sign * amount

    def add_vector(self, vector: Sequence[int], sign: int = 1) -> None:
        """Take only standard quantities in, or out. Written out: a batch of claims lives of it."""
        mine = self.vector
        mine[0] += sign * vector[0]
        mine[1] += sign * vector[1]
        mine[2] += sign * vector[2]
        mine[3] += sign * vector[3]
        mine[4] += sign * vector[4]

    def holds(self, ask: "Room", limit: "Room") -> bool:
        """True when this plus `ask` stays within `limit`, for each resource."""
        pairs = zip(self.vector, ask.vector, limit.vector, strict=True)
        if any(used + asked > there for used, asked, there in pairs):
            return False
        return all(
            self.extra.get(name, 0) + asked <= limit.extra.get(name, 0)
            for name, asked in ask.extra.items()
        )

    def is_nothing(self) -> bool:
        """True when every quantity is zero."""
        return not any(self.vector) and not any(self.extra.values())

    def amounts(self) -> Mapping[str, int]:
        """The extra quantities other than zero."""
        return {name: amount for name, amount in self.extra.items() if amount}
