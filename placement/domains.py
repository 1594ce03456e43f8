"""Rules over domains (racks, zones, values of a label): where may a task of this shape go?

A rule's answer is a flag per domain; a machine has the answer of its domain, so that a rule costs
one look-up per machine. Knows nothing of room, scores or order.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from domain.constraint import Even, Limit, Near, Spread
from domain.reasons import Reason
from placement.neighbours import Counts, Presence
from placement.pairs import At, Mask
from placement.room import Column, Parts

if TYPE_CHECKING:
    from placement.demand import Shape
    from placement.index import MachineIndex

_LABEL = "label:"
TOO_MANY = {"rack": Reason.TOO_MANY_PER_RACK, "zone": Reason.TOO_MANY_PER_ZONE}
"""Of a limit over a label: TOO_MANY_PER_VALUE."""

_NO_TASKS = 2**31 - 1
MayUse = Callable[["MachineIndex", "Shape"], Mask]
"""Over all slots: True where the shape's own rules (clusters, zones, labels) let it run."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to divide the machines into domains."""

    codes: Column
    """By slot, the domain's code; -1 where there is none."""
    named: Mask
    """By code, True for what is a domain; the last entry is that of machines that are in none.
    Every array of flags here has that last entry, so that -1 finds it."""
    codes_of: Mapping[Hashable, int]
    """By the domain's name in the fleet, its code."""


class KindTable:
    """The kinds of one index, worked out again when they change."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Mask, Mapping[Hashable, int]]] = {}
        self._labels: dict[str, tuple[int, Kind]] = {}

    def of(self, index: "MachineIndex", over: str) -> Kind:
        """By its name, as constraints write it."""
        if over == "zone":
            return self._of_names(over, index.zone, len(index.zones), index.zones.keys)
        if over == "rack":
            racks = index.domains(Spread.RACK)[1]
            return self._of_names(over, index.rack, racks, index.racks)
        if over == "machine":
            named = np.ones(index.slots + 1, dtype=np.bool_)
            named[-1] = False
            return Kind(np.arange(index.slots, dtype=np.int32), named, {})
        version, kind = self._labels.get(over, (-1, None))
        if kind is None or version != index.marks.changes or len(kind.codes) != index.slots:
            codes, values = index.marks.codes(over.removeprefix(_LABEL), index.slots)
            named = np.ones(len(values) + 1, dtype=np.bool_)
            named[-1] = False
            kind = Kind(codes, named, {value: code for code, value in enumerate(values)})
            self._labels[over] = (index.marks.changes, kind)
        return kind

    def _of_names(
        self, over: str, codes: Column, count: int, names: Callable[[], Iterable[Hashable]]
    ) -> Kind:
        """Names are only ever added; without one, a machine is in no domain."""
        known = self._named.get(over)
        if known is None or len(known[1]) != count:
            by_name = {name: code for code, name in enumerate(names())}
            there = [bool(name[-1] if isinstance(name, tuple) else name) for name in by_name]
            known = np.array([*there, False], dtype=np.bool_), by_name
            self._named[over] = known
        return Kind(codes, *known)


@dataclass(frozen=True, slots=True)
class Ruling:
    """One rule's answer."""

    reason: Reason
    kind: Kind
    allowed: Mask
    """By code."""

    def at(self, slots: At) -> Mask:
        """By machine."""
        answer: Mask = self.allowed[self.kind.codes[slots]]
        return answer


@dataclass(slots=True)
class _Counted:
    """Tasks of a presence by domain."""

    kind: Kind
    counts: Counts
    only: Mask | None
    """Machines on which they count; None: on all."""


class Domains:
    """Counts by domain, added up once when they are asked for, and kept true by `add`."""

    def __init__(self, index: "MachineIndex", may_use: MayUse, *, alone: bool = False) -> None:
        self._index = index
        self._may_use = may_use
        self._counted: dict[Presence, dict[tuple[str, object], _Counted]] = {}
        self._usable: dict[object, Mask] = {}
        self._there: dict[tuple[str, object], Mask] = {}
        """The domains of the machines that are usable."""
        self._beyond: Domains | None = None
        """The rest of the fleet; it is asked for what it holds alone."""
        if index.beyond is not None and not alone:
            self._beyond = Domains(index.beyond, may_use, alone=True)

    def forget(self) -> None:
        """Tasks were placed that nobody has told of; the machines are the same."""
        self._counted.clear()
        if self._beyond is not None:
            self._beyond.forget()

    def add(self, shape: "Shape", slot: int) -> None:
        """A task of the shape is there now."""
        for presence in shape.counted:
            for one in self._counted.get(presence, {}).values():
                code = one.kind.codes[slot]
                if code >= 0 and (one.only is None or one.only[slot]):
                    one.counts[code] += 1

    def rulings(self, shape: "Shape", only: Reason | None = None) -> Iterator[Ruling]:
        """The answer of every rule over domains that binds the shape; `only` those of a reason."""
        rules = shape.constraints
        if only in (None, Reason.NO_SUCH_DOMAIN):
            for over in rules.domains_needed():
                kind = self._kind(over)
                yield Ruling(Reason.NO_SUCH_DOMAIN, kind, kind.named)
        if only in (None, Reason.ANTI_AFFINITY):
            for rule in rules.apart:
                kind, counts = self._counts(Presence(shape.team, rule.service), rule.over)
                yield Ruling(Reason.ANTI_AFFINITY, kind, (counts == 0) | ~kind.named)
            yield from self.kept_off(shape)
        for limit in rules.limits:
            reason = TOO_MANY.get(limit.over, Reason.TOO_MANY_PER_VALUE)
            if only in (None, reason):
                yield self._limited(shape, limit, reason)
        for even in rules.even:
            if even.required and only in (None, Reason.UNEVEN):
                yield self._even(shape, even)
        for near in rules.near:
            if near.required and only in (None, Reason.NOT_NEAR):
                yield self._near(shape, near)

    def kept_off(self, shape: "Shape") -> Iterator[Ruling]:
        """Where somebody is who shuns the shape's service over a domain."""
        service = shape.constraints.service
        if service is None:
            return
        for over in shunned_over(self._index, shape.team, service):
            kind, counts = self._counts(Presence(shape.team, service, True, over), over)
            yield Ruling(Reason.ANTI_AFFINITY, kind, (counts == 0) | ~kind.named)

    def allowed(self, shape: "Shape", at: At) -> Mask | None:
        """True where all rules over domains let the shape run; None: they allow every machine."""
        answer: Mask | None = None
        for ruling in self.rulings(shape):
            # That there is a domain is part of what the others say.
            if ruling.reason is not Reason.NO_SUCH_DOMAIN and not ruling.allowed.all():
                here = ruling.at(at)
                answer = here if answer is None else answer & here
        return answer

    def preference(self, shape: "Shape", slots: npt.NDArray[np.intp]) -> Parts | None:
        """How well the machines, all of which can take the task, meet its wishes, in [0, 1]: the
        mean over `near` (1 where the service is) and `even` (1 where the domain has fewest of those
        that can take it, 1 / (1 + n) where it has n more). None where it has none."""
        rules, parts = shape.constraints, []
        for near in rules.near:
            if not near.required:
                kind, counts = self._counts(Presence(shape.team, near.service), near.over)
                parts.append(((counts > 0) & kind.named)[kind.codes[slots]].astype(np.float32))
        for even in rules.even:
            if not even.required:
                assert rules.service is not None
                kind, counts = self._counts(Presence(shape.team, rules.service), even.over)
                codes = kind.codes[slots]
                named, here = kind.named[codes], counts[codes]
                fewest = here[named].min(initial=np.iinfo(np.int32).max)
                more = np.where(named, here - fewest, 0).astype(np.float32)
                parts.append(np.where(named, np.float32(1) / (np.float32(1) + more), 0))
        if not parts:
            return None
        total: Parts = np.stack(parts).sum(axis=0, dtype=np.float32)
        return total / np.float32(len(parts))

    def _limited(self, shape: "Shape", limit: Limit, reason: Reason) -> Ruling:
        service = shape.constraints.service
        assert service is not None
        kind, counts = self._counts(Presence(shape.team, service), limit.over)
        return Ruling(reason, kind, (counts < limit.tasks) & kind.named)

    def _near(self, shape: "Shape", near: Near) -> Ruling:
        presence = Presence(shape.team, near.service)
        kind, counts = self._counts(presence, near.over)
        allowed = (counts > 0) & kind.named
        anywhere = any(side.neighbours.by_slot(presence) for side in sides_of(self._index))
        if near.service == shape.constraints.service and not anywhere:
            # The first of a service that wants to be near itself has to begin somewhere.
            allowed = kind.named
        return Ruling(Reason.NOT_NEAR, kind, allowed)

    def _even(self, shape: "Shape", even: Even) -> Ruling:
        rules = shape.constraints
        assert rules.service is not None
        presence = Presence(shape.team, rules.service)
        kind, counts = self._counts(presence, even.over, only=shape)
        there = self._domains_there(shape, even.over)
        held = dict(zip(np.flatnonzero(there).tolist(), counts[there].tolist(), strict=True))
        number, least = len(held), min(held.values(), default=_NO_TASKS)
        if self._beyond is not None:
            # The domains in which the rest of the fleet stands as well are among those counted.
            for name, code in self._beyond._names_there(shape, even.over).items():
                own = kind.codes_of.get(name, -1)
                if own not in held:
                    number += 1
                    beyond = self._beyond._counts(presence, even.over, only=shape)[1]
                    least = min(least, int(beyond[code] if own < 0 else counts[own]))
        fewest = least if number >= even.min_domains and number else 0
        return Ruling(Reason.UNEVEN, kind, (counts + 1 - fewest <= even.max_skew) & kind.named)

    def _domains_there(self, shape: "Shape", over: str) -> Mask:
        """By code, the domains of the machines that the shape may use."""
        there = self._there.get((over, _own_rules(shape)))
        if there is None:
            kind = self._kind(over)
            there = np.zeros(len(kind.named), dtype=np.bool_)
            there[kind.codes[: self._index.slots][self._usable_for(shape)]] = True
            there &= kind.named
            self._there[over, _own_rules(shape)] = there
        return there

    def _names_there(self, shape: "Shape", over: str) -> dict[Hashable, int]:
        """The same by name, with their codes; machines, which have none in common, by code."""
        there, names = self._domains_there(shape, over), self._kind(over).codes_of
        if over == "machine":
            return {("beyond", code): code for code in np.flatnonzero(there).tolist()}
        return {name: code for name, code in names.items() if there[code]}

    def _usable_for(self, shape: "Shape") -> Mask:
        key = _own_rules(shape)
        found = self._usable.get(key)
        if found is None:
            found = self._usable[key] = self._may_use(self._index, shape)
        return found

    def _kind(self, over: str) -> Kind:
        return self._index.kinds.of(self._index, over)

    def _counts(
        self, presence: Presence, over: str, *, only: "Shape | None" = None
    ) -> tuple[Kind, Counts]:
        """By code, how many are there; on machines that `only` may use, where it is given."""
        known = self._counted.setdefault(presence, {})
        key = (over, None if only is None else _own_rules(only))
        found = known.get(key)
        if found is None:
            kind = self._kind(over)
            mask = None if only is None else self._usable_for(only)
            there = self._index.neighbours.by_slot(presence)
            slots = np.fromiter(there, dtype=np.intp, count=len(there))
            numbers = np.fromiter(there.values(), dtype=np.int32, count=len(there))
            if mask is not None:
                numbers = numbers * mask[slots]
            counts = np.zeros(len(kind.named), dtype=np.int32)
            np.add.at(counts, kind.codes[slots], numbers)
            counts[-1] = 0
            if self._beyond is not None:
                beyond, others = self._beyond._counts(presence, over, only=only)
                names = list(beyond.codes_of)
                for code in np.flatnonzero(others).tolist() if names else ():
                    if (own := kind.codes_of.get(names[code], -1)) >= 0:
                        counts[own] += others[code]
            found = known[key] = _Counted(kind, counts, mask)
        return found.kind, found.counts


def sides_of(index: "MachineIndex") -> list["MachineIndex"]:
    """The index, and that of the rest of the fleet where there is one."""
    return [index] if index.beyond is None else [index, index.beyond]


def shunned_over(index: "MachineIndex", team: str, service: str) -> list[str]:
    """The kinds of domains over which some task of the fleet shuns the service, in order."""
    found = (side.neighbours.shunned_over(team, service) for side in sides_of(index))
    return sorted({over for overs in found for over in overs})


def anyone_shuns(index: "MachineIndex") -> bool:
    """Some task of the fleet wants some service not beside it."""
    return any(side.neighbours.anyone_shuns for side in sides_of(index))


def _own_rules(shape: "Shape") -> object:
    rules = shape.constraints
    return (rules.clusters, rules.zones, rules.labels)
