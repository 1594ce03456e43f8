"""Named policies: which scorers count, and how much. Data; the numbers are what a policy is."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from placement.score import Scorer, best_fit, load, packing


@dataclass(frozen=True, slots=True)
class Weighted:
    """A scorer and its weight against the others of its policy."""

    scorer: Scorer
    weight: float


@dataclass(frozen=True, slots=True)
class Policy:
    """How machines that fit are compared."""

    name: str
    scorers: tuple[Weighted, ...]
    spread_weight: float
    """Counts only for tasks that ask to be spread. At twice the sum of the others a less used zone,
    rack or machine always goes before a better packed one."""

    @property
    def weight(self) -> float:
        """The sum that brings weighted scores back into [0, 1]."""
        return sum(weighted.weight for weighted in self.scorers) + self.spread_weight


_ALL = (
    Policy("pack", (Weighted(packing, 0.95), Weighted(best_fit, 0.05)), 2.0),
    Policy("best_fit", (Weighted(best_fit, 1.0),), 2.0),
    Policy("spread", (Weighted(load, 1.0),), 2.0),
)

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _ALL})
DEFAULT_POLICY = POLICIES["pack"]
