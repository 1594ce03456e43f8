"""Named policies: which scorers count, and how much. Data; the numbers are what a policy is."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from placement.gradient import gradient
from placement.hands import SCORE_STEPS, Hands, Scores, Table
from placement.score import (
    Scorer,
    balance,
    best_fit,
    busy,
    fullness,
    load,
    memory_balance,
    packing,
    spread,
)


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
    """Of machines without GPUs."""
    gpu_scorers: tuple[Weighted, ...]
    """Of machines with GPUs."""
    spread_weight: float
    """Counts only for tasks that ask to be spread. At twice the sum of the others a less used zone,
    rack or machine always goes before a better packed one."""

    def score(self, hands: Hands, bad: Table, over: Table | None) -> Scores:
        """In steps: whole numbers are what counts. `over`, where the tasks are to be spread, says
        how many of their services are there."""
        scorers = self.scorers if hands.mix is None else self.gpu_scorers
        weights = [weighted.weight for weighted in scorers]
        weight = sum(weights) + (self.spread_weight if over is not None else 0.0)
        step = SCORE_STEPS / weight
        total: Scores | None = None
        for weighted in scorers:
            part = weighted.scorer(hands)
            part *= np.float32(weighted.weight * step)
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None
        if over is not None:
            total += spread(bad, over) * np.float32(self.spread_weight * step)
        return total


_BEST_FIT, _LOAD = (Weighted(best_fit, 1.0),), (Weighted(load, 1.0),)
_ALL = (
    Policy(
        "pack",
        (Weighted(packing, 0.98), Weighted(fullness, 0.02)),
        (
            Weighted(gradient, 0.955),
            Weighted(balance, 0.02),
            Weighted(memory_balance, 0.01),
            Weighted(busy, 0.015),
        ),
        2.0,
    ),
    Policy("best_fit", _BEST_FIT, _BEST_FIT, 2.0),
    Policy("spread", _LOAD, _LOAD, 2.0),
)

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _ALL})
DEFAULT_POLICY = POLICIES["pack"]
