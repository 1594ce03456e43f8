"""How much was in use, waited and was stranded as a run went on, in a bounded number of points.

In a packing run nothing takes time: there the way is counted in tasks that have arrived.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drystone.simulate.accounts import MEASURED, Accounts

POINTS_MAX = 4_000
"""More points than that are thinned to half: every second one goes."""


@dataclass(frozen=True, slots=True)
class Point:
    """How things stood at one moment."""

    at: int
    """Milliseconds of the virtual clock, or tasks arrived."""
    used: tuple[int, ...]
    """In the order of MEASURED, over all machines."""
    waiting: int


@dataclass(frozen=True, slots=True)
class Look:
    """A closer look, taken now and then: shares of the capacity of the whole fleet."""

    at: int
    stranded: Mapping[str, float]
    """Per resource, see `figures.stranded`."""


@dataclass(slots=True)
class History:
    """Points for the plot, and exact sums over time for the means."""

    accounts: Accounts
    points: list[Point] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    began: int | None = None
    now: int = 0
    used_over_time: list[int] = field(default_factory=lambda: [0] * len(MEASURED))
    _every: int = 1
    _noted: int = 0

    def pass_to(self, now: int) -> None:
        """Time goes on: what is in use has been so since the last moment."""
        if self.began is None:
            self.began = self.now = now
        passed = now - self.now
        assert passed >= 0, (self.now, now)
        if passed:
            for column, used in enumerate(self.accounts.used):
                self.used_over_time[column] += used * passed
        self.now = now

    def note(self, at: int, waiting: int, *, last: bool = False) -> None:
        """Keep a point, if it is its turn or the last."""
        self._noted += 1
        if self._noted % self._every and not last:
            return
        self.points.append(Point(at, tuple(self.accounts.used), waiting))
        if len(self.points) > POINTS_MAX:
            del self.points[::2]
            self._every *= 2

    def mean_used(self) -> list[float] | None:
        """Per resource, in use on average over the run; None when no time has passed."""
        if self.began is None or self.now == self.began:
            return None
        return [used / (self.now - self.began) for used in self.used_over_time]
