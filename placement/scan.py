"""One shape against all machines, kept true while a round assigns: the best machine at any moment.

Equals filtering and scoring every machine anew for each task. It is faster because an assignment
changes one machine (and, for a spread service, the counts of its zone or rack), so that only the
machines touched since the last look are judged again.
"""

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from placement.demand import Shape
from placement.feasible import MOVING, SETTLED, feasible
from placement.index import MachineIndex
from placement.pairs import At
from placement.policy import Policy
from placement.score import Score, spread

SCORE_STEPS = 2**20
"""Scores nearer than one step are equal, and the draw decides."""
_NO_FIT = -1
_DRAW_BITS = 32

Draw = npt.NDArray[np.int64]


def draw_ties(index: MachineIndex, seed: int) -> Draw:
    """Per slot, the machine's place in this round's draw: the greater wins among equal scores.

    Drawn over machines in the order of names, so that the order of rows decides nothing.
    """
    by_name = index.by_name()
    draw = np.zeros(index.slots, dtype=np.int64)
    draw[by_name] = np.random.Generator(np.random.PCG64(seed)).permutation(len(by_name))
    return draw


class Scan:
    """The ranks of all machines for one shape."""

    def __init__(self, index: MachineIndex, shape: Shape, policy: Policy, draw: Draw) -> None:
        self._index = index
        self._shape = shape
        self._policy = policy
        self._draw = draw
        self._spread = shape.constraints.spread is not Spread.NONE
        self._settled = feasible(index, shape, index.everywhere, SETTLED)
        self._fits = np.zeros_like(self._settled)
        self._plain = np.zeros(index.slots, dtype=np.float64)
        self._rank = np.full(index.slots, _NO_FIT, dtype=np.int64)
        self._seen = 0
        self._judge(index.everywhere)

    def best(self, touched: list[int]) -> int | None:
        """The slot of the best machine now, None when none fits. `touched` lists the slots of this
        round's assignments from its start; it may only have grown since the last call."""
        if self._seen < len(touched):
            changed = set(touched[self._seen :])
            self._seen = len(touched)
            self._judge(np.fromiter(changed, dtype=np.intp, count=len(changed)))
        slot = int(self._rank.argmax()) if len(self._rank) else 0
        return slot if len(self._rank) and self._rank[slot] != _NO_FIT else None

    def _judge(self, at: At) -> None:
        index, shape = self._index, self._shape
        fits = self._settled[at] & feasible(index, shape, at, MOVING)
        self._fits[at] = fits
        plain: Score = np.zeros(len(fits), dtype=np.float64)
        for weighted in self._policy.scorers:
            plain += weighted.weight * weighted.scorer(index, shape, at)
        self._plain[at] = plain
        if self._spread:
            at = index.everywhere
            fits, plain = self._fits, self._plain
            plain = plain + self._policy.spread_weight * spread(index, shape, at, fits)
        self._rank[at] = self._ranked(fits, plain, at)

    def _ranked(self, fits: npt.NDArray[np.bool_], score: Score, at: At) -> Draw:
        steps = (score / self._policy.weight * SCORE_STEPS).astype(np.int64)
        rank: Draw = np.where(fits, (steps << _DRAW_BITS) | self._draw[at], _NO_FIT)
        return rank
