"""Who is dealt from which pool, and how many at a time. Chooses no machine.

Tasks fall into families: each is served by rounds of its own, because its pools have no machine in
common while those of two families may have.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from domain.constraint import Spread
from placement.demand import Batch, Rule
from placement.feasible import SETTLED, feasible
from placement.hands import Hands, many_pools, one_pool
from placement.index import MachineIndex
from placement.mix import Mix
from placement.pools import ANYWHERE, NOWHERE, Pool, Source, size, slots_of
from placement.room import Column
from placement.rules import RULES_MAX
from placement.scarce import Scarce
from placement.spreads import OVER, SpreadCounts

Tasks = npt.NDArray[np.intp]
"""Places in the batch."""

_BY_ZONE = OVER.index(Spread.ZONE)
_RARE = 4
"""A rule that suits less than one machine of so many is dealt from those that it suits."""


@dataclass(frozen=True, slots=True)
class Share:
    """Some tasks of a family, and the pool they have to themselves."""

    pool: Pool
    tasks: Tasks
    shifts: Column | None

    def part(self, first: int, end: int) -> "Share":
        """Some of the tasks."""
        shifts = None if self.shifts is None else self.shifts[first:end]
        return Share(self.pool, self.tasks[first:end], shifts)


@dataclass(frozen=True, slots=True)
class Family:
    """Tasks that are served together."""

    shares: tuple[Share, ...]
    over: Spread
    """By which domains the machines of a hand are compared for the service's sake."""


class Dealer:
    """Pools and rules of one batch: with a mix of machines with GPUs, else of those without."""

    def __init__(
        self,
        index: MachineIndex,
        batch: Batch,
        spreads: SpreadCounts,
        chance: random.Random,
        *,
        mix: Mix | None,
        scarce: Scarce | None = None,
    ) -> None:
        """`scarce`: only machines that have enough for the least of its shapes, if they are few."""
        self._index = index
        self._batch = batch
        self._chance = chance
        self.mix = mix
        self._with_gpu = mix is not None
        self._sources: dict[int, Source] = {}
        self._bits: dict[Rule, int] = {}
        self._spreads = spreads
        self._scarce = scarce if scarce is not None and scarce.part_left < 1 else None

    def families(self, tasks: Tasks, *, in_turn: bool) -> Iterator[Family]:
        """Every one of these tasks (ascending) in one family. `in_turn`: tasks of a service that
        are to be spread over zones are given a zone each, the least used ones first."""
        codes = self._batch.code[tasks]
        rules = self._batch.rule[codes]
        over = self._spreads.over[codes]
        zones = np.full(len(tasks), ANYWHERE, dtype=np.int64)
        if in_turn and over.any():
            self._give_zones(tasks, over, zones)
        # One number per (over, zone given, rule); rules that share a pool come together below.
        key = (over.astype(np.int64) << 48) | ((zones + 1) << 24) | rules
        distinct, which = np.unique(key, return_inverse=True)
        grouped: dict[tuple[int, int], dict[int, list[tuple[Source, Tasks]]]] = {}
        for at, one in enumerate(distinct.tolist()):
            source = self._source(one & 0xFFFFFF, (one >> 24 & 0xFFFFFF) - 1)
            mine = tasks[which == at]
            # Zones have no machine in common; anything else may overlap.
            apart = -1 if source.zone != ANYWHERE and source.shift is not None else id(source.pool)
            family = grouped.setdefault((one >> 48, apart), {})
            family.setdefault(id(source.pool), []).append((source, mine))
        for (kind, _), pools in grouped.items():
            yield Family(tuple(_share(pool) for pool in pools.values()), OVER[kind])

    def source(self, code: int) -> Source:
        """Where a shape is dealt from."""
        return self._source(int(self._batch.rule[code]), ANYWHERE)

    def rounds(self, family: Family, hand: int) -> Iterator[tuple[Tasks, Hands]]:
        """Deal every task of the family at least `hand` machines, or all there are."""
        shares = [share for share in family.shares if size(share.pool)]
        widths = [max(1, size(share.pool) // hand) for share in shares]
        numbers = [-(-len(s.tasks) // width) for s, width in zip(shares, widths, strict=True)]
        steps = [-(-len(s.tasks) // n) for s, n in zip(shares, numbers, strict=True)]
        for number in range(max(numbers, default=0)):
            yield self._round(
                [
                    share.part(number * step, (number + 1) * step)
                    for share, step in zip(shares, steps, strict=True)
                    if number * step < len(share.tasks)
                ]
            )

    def _round(self, some: Sequence[Share]) -> tuple[Tasks, Hands]:
        tasks = np.concatenate([share.tasks for share in some])
        shifts = [share.shifts for share in some if share.shifts is not None]
        rest = {
            "mix": self.mix,
            "codes": self._batch.code[tasks],
            "shifts": np.concatenate(shifts) if shifts else None,
        }
        if len(some) > 1:
            pools = [(share.pool, len(share.tasks)) for share in some]
            return tasks, many_pools(self._index, self._batch, pools, **rest)
        pool = some[0].pool
        spare = size(pool) % len(tasks)
        first = self._chance.randrange(spare + 1)
        return tasks, one_pool(self._index, self._batch, pool, first, **rest)

    def _source(self, rule: int, zone: int) -> Source:
        """Of a rule by its code, and in a zone where one is given."""
        key = rule << 24 | (zone + 1)
        found = self._sources.get(key)
        if found is None:
            found = self._sources[key] = self._find(self._batch.rules[rule], zone)
        return found

    def _find(self, rule: Rule, zone: int) -> Source:
        index = self._index
        if len(rule.zones) == 1:
            zone = index.zones.get(rule.zones[0], NOWHERE)
            rule = Rule(rule.clusters, (), rule.labels, rule.tolerations, rule.cooling)
        pool = index.pools.of(index, zone, with_gpu=self._with_gpu)
        if self._scarce is not None:
            pool = self._scarce.narrowed(pool)
        if rule not in self._bits and len(self._bits) == RULES_MAX:
            suits = slots_of(pool, 0, size(pool))
            return Source(suits[feasible(index, rule.shape, suits, SETTLED)], zone, None)
        shift = self._bits[rule] = index.rules.shift(index, rule)
        bars = index.rules.bars[pool]
        suited = np.flatnonzero(bars << shift >= 0)
        if len(suited) * _RARE < len(bars):
            return Source(slots_of(pool, 0, size(pool))[suited], zone, None)
        return Source(pool, zone, shift)

    def _give_zones(
        self, tasks: Tasks, over: npt.NDArray[np.int8], zones: npt.NDArray[np.int64]
    ) -> None:
        """Write into `zones`; such a task is not compared by zones any more."""
        index = self._index
        known = [
            zone
            for zone in index.zones.values()
            if size(index.pools.of(index, zone, with_gpu=self._with_gpu))
        ]
        free = np.array([not (r.zones or r.clusters) for r in self._batch.rules], dtype=np.bool_)
        codes = self._batch.code[tasks]
        mine = np.flatnonzero((over == _BY_ZONE) & free[self._batch.rule[codes]])
        if len(known) > 1 and len(mine):
            turn = self._chance.randrange(len(known))
            given = self._spreads.zones_in_turn(codes[mine], known[turn:] + known[:turn])
            zones[mine] = given
            over[mine[given != ANYWHERE]] = 0


def _share(parts: list[tuple[Source, Tasks]]) -> Share:
    tasks = np.concatenate([mine for _, mine in parts])
    order = np.argsort(tasks, kind="stable")
    shifts = None
    if parts[0][0].shift is not None:
        shifts = np.concatenate([np.full(len(m), s.shift, np.int32) for s, m in parts])[order]
    return Share(parts[0][0].pool, tasks[order], shifts)
