"""What of a machine does not change while a round assigns: may this kind of task be there at all?

Each rule in use (clusters, zones, labels, tolerations, cool-downs) has one bit of a 32-bit column,
set where the machine is ruled out, so that a round asks them all with one shift and one `or`.
"""

from typing import TYPE_CHECKING

import numpy as np

from placement.demand import Rule
from placement.feasible import SETTLED, feasible
from placement.room import Column, Slots

if TYPE_CHECKING:
    from placement.index import MachineIndex

RULES_MAX = 32
"""Rules that stand in the column at a time; one more takes the place of the least lately used."""
_TOP_BIT = 31


class RuleTable:
    """A cache over the index: every bit can be worked out again from the machines."""

    def __init__(self) -> None:
        self.bars: Column = np.zeros(0, dtype=np.int32)
        self._bits: dict[Rule, int] = {}
        """In the order of last use."""
        self.version = 0
        """Another number whenever some machine is not what it was."""

    def grow(self, slots: int) -> None:
        """Make room for so many slots."""
        longer = np.zeros(slots, dtype=np.int32)
        longer[: len(self.bars)] = self.bars
        self.bars = longer

    def shift(self, index: "MachineIndex", rule: Rule) -> int:
        """How far to the left the rule's bit stands from the sign of `bars`."""
        bit = self._bits.pop(rule, None)
        if bit is None:
            bit = self._free_bit()
            self._write(index, rule, bit, np.arange(index.slots))
        self._bits[rule] = bit
        return _TOP_BIT - bit

    def refresh(self, index: "MachineIndex", slots: Slots) -> None:
        """These machines are not what they were."""
        self.version += 1
        for rule, bit in self._bits.items():
            self._write(index, rule, bit, slots)

    def forget(self) -> None:
        """Everything may have changed: work it out when it is asked for."""
        self.version += 1
        self._bits.clear()

    def _free_bit(self) -> int:
        if len(self._bits) < RULES_MAX:
            return next(bit for bit in range(RULES_MAX) if bit not in self._bits.values())
        return self._bits.pop(next(iter(self._bits)))

    def _write(self, index: "MachineIndex", rule: Rule, bit: int, slots: Slots) -> None:
        barred = ~feasible(index, rule.shape, slots, SETTLED)
        words = self.bars.view(np.uint32)
        kept = words[slots] & ~np.uint32(1 << bit)
        words[slots] = kept | (barred.astype(np.uint32) << np.uint32(bit))
