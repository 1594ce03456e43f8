"""The demand that machines with GPUs are kept fit for: the typical tasks that ask for GPUs.

What has been placed lately is remembered from batch to batch, so that tasks that come one by one
are packed like those that come together. Knows no machine's room.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from placement.demand import Batch, Rule
from placement.devices import WHOLE_MILLI
from placement.feasible import SETTLED, feasible
from placement.room import CPU, GPU, MEMORY
from placement.rules import RuleTable
from placement.worth import Cells, Typical, Worth

if TYPE_CHECKING:
    from placement.index import MachineIndex

Mask = npt.NDArray[np.bool_]

TYPICAL_PERCENT = 95
TYPICAL_MAX = 128
"""The commonest asks are typical: those that make up so large a part, and at most so many."""
ASKS_MAX = 1_024
"""Different asks that are counted in a batch, and that are remembered."""
REMEMBERED_MAX = 20_000
"""Tasks remembered; one more, and every count is halved."""
WEIGHT_STEPS = 2**20
"""How often an ask comes is counted in parts of so many."""
INDEXES_MAX = 2
"""A scheduler with a slice of its own has one index for it, and one for all other machines."""
NEWS_PART = 20
"""A mix is good until what has changed is one part of so many."""


class Ask(NamedTuple):
    """What a task that asks for GPUs asks for, as far as it matters to other tasks."""

    cpu_milli: int
    memory_mib: int
    gpu: int
    gpu_milli: int
    rule: Rule


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Typical tasks, how often each comes, and what idle GPU time is worth to them."""

    typical: Typical
    rules: tuple[Rule, ...]
    """Each once."""
    rule: npt.NDArray[np.intp]
    """Each typical task's place in `rules`."""
    _known: dict[RuleTable, tuple[int, Worth]] = field(default_factory=dict)
    """By the index, as its table of rules has it, and the version of that."""

    @classmethod
    def of(cls, counts: Mapping[Ask, int]) -> "Mix":
        """The typical of these, of equally common ones the first."""
        asks = list(counts)
        number = np.array([counts[ask] for ask in asks], dtype=np.int64)
        order = np.argsort(-number, kind="stable")
        before = np.cumsum(number[order]) - number[order]
        common = order[before * 100 <= TYPICAL_PERCENT * number.sum()][:TYPICAL_MAX]
        some = [asks[at] for at in common.tolist()]
        # In whole steps, so that sums of them are exact and their order decides nothing.
        steps = number[common] * WEIGHT_STEPS // max(int(number[common].sum()), 1)
        rules: dict[Rule, int] = {}
        rule = [rules.setdefault(ask.rule, len(rules)) for ask in some]
        columns = np.array([ask[:4] for ask in some], dtype=np.int32).reshape(-1, 4).T
        cpu, memory, whole, share = columns
        weight = steps.astype(np.float32) * np.float32(1 / WEIGHT_STEPS)
        return cls(
            typical=Typical(cpu, memory, share, whole, weight),
            rules=tuple(rules),
            rule=np.array(rule, dtype=np.intp),
        )

    def worth(self, index: "MachineIndex") -> Worth:
        """Of the idle GPU time of an index's machines; worked out again when any of them is not
        what it was. Apart from the index's own table of rules, where not so many have room."""
        version, worth = self._known.get(index.rules, (None, None))
        if worth is None or version != index.rules.version:
            worth = Worth.of(self.typical, *self._kinds(index))
            if index.rules not in self._known and len(self._known) == INDEXES_MAX:
                del self._known[next(iter(self._known))]
            self._known[index.rules] = (index.rules.version, worth)
        return worth

    def _kinds(self, index: "MachineIndex") -> tuple[Cells, Mask]:
        """By slot the machine's kind: machines of one kind meet the same rules; and bool of shape
        (typical tasks, kinds): whether these meet the rules of the task. Of machines with GPUs:
        any others are of kind 0."""
        kind = np.zeros(index.slots, dtype=np.intp)
        has_gpus = index.room.capacity[GPU, : index.slots] > 0
        there = np.flatnonzero(index.present[: index.slots] & has_gpus)
        meets = np.array([feasible(index, rule.shape, there, SETTLED) for rule in self.rules])
        code, first = np.zeros(len(there), dtype=np.intp), there[:1] * 0
        for eight in np.packbits(meets, axis=0):
            # Codes are counted anew each time, so that they stay small.
            _, first, code = np.unique(code * 256 + eight, return_index=True, return_inverse=True)
        kind[there] = code
        return kind, np.asarray(meets[:, first][self.rule])


class Demand:
    """What has been asked for: the memory of one scheduler, given to its index.

    A task counts when it is placed; one that waits counts while it is in the batch, however often
    it comes again.
    """

    def __init__(self) -> None:
        self._counts: dict[Ask, int] = {}
        self._tasks = 0
        self._mix: Mix | None = None
        self._made_of = 0
        """Tasks in the mix, and of these remembered ones."""
        self._remembered_then = 0

    def mix(self, batch: Batch) -> Mix:
        """Of what is remembered and this batch."""
        here = _counted(batch, np.ones(len(batch), dtype=np.bool_))
        tasks = sum(here.values())
        news = tasks + abs(self._tasks - self._remembered_then)
        if self._mix is None or NEWS_PART * news >= self._made_of:
            together = dict(self._counts)
            for ask, number in here.items():
                together[ask] = together.get(ask, 0) + number
            self._mix = Mix.of(together)
            self._made_of = self._tasks + tasks
            self._remembered_then = self._tasks
        return self._mix

    def learn(self, batch: Batch, placed: Mask) -> None:
        """Remember those of the batch that have been placed."""
        for ask, number in _counted(batch, placed).items():
            self._counts[ask] = self._counts.get(ask, 0) + number
            self._tasks += number
        while self._tasks > REMEMBERED_MAX or len(self._counts) > ASKS_MAX:
            halves = {ask: number // 2 for ask, number in self._counts.items()}
            self._counts = {ask: number for ask, number in halves.items() if number}
            self._tasks = sum(self._counts.values())


def _counted(batch: Batch, some: Mask) -> dict[Ask, int]:
    """How many of these tasks ask for what, the commonest first. Who wants no GPU is left out."""
    asking = batch.ask[GPU] * WHOLE_MILLI + batch.gpu_milli > 0
    if not asking.any():
        return {}
    number = np.bincount(batch.code[some], minlength=len(asking)) * asking
    order = np.argsort(-number, kind="stable")[:ASKS_MAX]
    counts: dict[Ask, int] = {}
    for code in order[number[order] > 0].tolist():
        cpu, memory, gpu = batch.ask[[CPU, MEMORY, GPU], code].tolist()
        ask = Ask(cpu, memory, gpu, int(batch.gpu_milli[code]), batch.rules[batch.rule[code]])
        counts[ask] = counts.get(ask, 0) + int(number[code])
    return counts
