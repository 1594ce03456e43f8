"""Who lives beside whom: tasks per team, service and machine. Knows nothing of rules or room."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from domain.fleet import MachineColumns
from placement.pairs import At

Counts = npt.NDArray[np.int32]


class Presence(NamedTuple):
    """What is counted: tasks of a team's service, or tasks that want none of it beside them."""

    team: str
    service: str
    shunned: bool = False
    over: str = ""
    """Of those that want none of it beside them: in which domain; empty for the machine."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What one task is to the others on its machine."""

    team: str
    service: str | None = None
    shuns: tuple[str, ...] = ()
    """In the words of `Constraints.shuns`."""

    def presences(self) -> list[Presence]:
        """Every count that this task raises."""
        own = [] if self.service is None else [Presence(self.team, self.service)]
        shunned = (shun.partition("@") for shun in sorted(set(self.shuns)))
        return own + [Presence(self.team, service, True, over) for service, _, over in shunned]


@dataclass(slots=True)
class DomainRows:
    """How many tasks of services are in each zone, or in each rack."""

    table: Counts
    """(rows, domains)."""
    row_of: dict[Presence, int]
    """The rows that are true. Any other row may be used for another service."""


class NeighbourTable:
    """Counts by presence and machine slot, kept sparse: a service is on few machines of many."""

    def __init__(self) -> None:
        self._counts: dict[Presence, dict[int, int]] = {}
        self._held: dict[int, set[Presence]] = {}
        self._shunning = 0
        self._over: dict[tuple[str, str], set[str]] = {}
        """By team and service, over which domains some task shuns it."""
        self.rows: dict[Spread, DomainRows] = {}
        """By kind of domain, what somebody has added up (`SpreadCounts`). A service's row is not
        true any more when a task of it comes or goes."""

    @property
    def anyone_shuns(self) -> bool:
        """Some task somewhere wants some service not beside it."""
        return self._shunning > 0

    def add(self, slot: int, presence: Presence, count: int) -> None:
        """So many more (or, below zero, fewer) on this machine; fewer than none is our bug."""
        self._forget_row(presence)
        there = self._counts.get(presence)
        if there is None:
            there = self._come(presence)
        after = there.get(slot, 0) + count
        assert after >= 0, (slot, presence, after)
        if after:
            there[slot] = after
            self._held.setdefault(slot, set()).add(presence)
        else:
            self._drop(slot, presence)

    def add_one_each(self, slots: Iterable[int], counted: Iterable[tuple[Presence, ...]]) -> None:
        """`add` of one task on each of these machines."""
        counts, held = self._counts, self._held
        for slot, presences in zip(slots, counted, strict=True):
            for presence in presences:
                self._forget_row(presence)
                there = counts.get(presence)
                if there is None:
                    there = self._come(presence)
                there[slot] = there.get(slot, 0) + 1
                names = held.get(slot)
                if names is None:
                    held[slot] = {presence}
                else:
                    names.add(presence)

    def clear(self, slot: int) -> None:
        """Nothing of any service is on this machine."""
        for presence in list(self._held.get(slot, ())):
            self._drop(slot, presence)

    def put_columns(self, columns: MachineColumns, slots: npt.NDArray[np.intp]) -> bool:
        """What many machines hold beside each other; True when something was there before."""
        changed = self.clear_many(slots)
        for at, beside in columns.beside.items():
            for one in beside:
                for presence in Neighbour(one.team, one.service, one.shuns).presences():
                    self.add(int(slots[at]), presence, one.count)
        return changed

    def clear_many(self, slots: npt.NDArray[np.intp]) -> bool:
        """`clear` on many machines; True when something was there."""
        if not self._held:
            return False
        there = [slot for slot in slots.tolist() if slot in self._held]
        for slot in there:
            self.clear(slot)
        return bool(there)

    def counts(self, presence: Presence, at: At, slots: int) -> Counts:
        """How many are on each machine of `at`; `slots` is how many there are in all."""
        there = self._counts.get(presence, {})
        if isinstance(at, slice):
            dense = np.zeros(slots, dtype=np.int32)
            dense[np.fromiter(there, dtype=np.intp, count=len(there))] = np.fromiter(
                there.values(), dtype=np.int32, count=len(there)
            )
            return dense[at]
        return np.fromiter((there.get(slot, 0) for slot in at.tolist()), np.int32, count=len(at))

    def known(self) -> Container[Presence]:
        """Everything that is counted somewhere."""
        return self._counts.keys()

    def by_slot(self, presence: Presence) -> dict[int, int]:
        """The machines that have any, with how many. Not to be changed."""
        return self._counts.get(presence, {})

    def shunned_over(self, team: str, service: str) -> list[str]:
        """The kinds of domains over which some task shuns the service, in alphabetical order."""
        return sorted(self._over.get((team, service), ()))

    def _come(self, presence: Presence) -> dict[int, int]:
        there = self._counts[presence] = {}
        self._shunning += presence.shunned
        if presence.over:
            self._over.setdefault(presence[:2], set()).add(presence.over)
        return there

    def _go(self, presence: Presence) -> None:
        self._shunning -= presence.shunned
        if presence.over:
            overs = self._over[presence[:2]]
            overs.discard(presence.over)
            if not overs:
                del self._over[presence[:2]]

    def _forget_row(self, presence: Presence) -> None:
        for rows in self.rows.values():
            rows.row_of.pop(presence, None)

    def _drop(self, slot: int, presence: Presence) -> None:
        self._forget_row(presence)
        there = self._counts.get(presence, {})
        there.pop(slot, None)
        if not there and self._counts.pop(presence, None) is not None:
            self._go(presence)
        held = self._held.get(slot, set())
        held.discard(presence)
        if not held:
            self._held.pop(slot, None)
