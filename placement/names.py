"""Which machine stands in which slot, by cluster and name. Knows nothing else of machines."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from placement.room import Slots

_BETWEEN = "\n"
"""Between cluster and name; no cluster's name holds one."""


class NameTable:
    """A slot is kept while its machine stays, and used again after.

    A machine is one text here and not a tuple: of texts alone the garbage collector has nothing to
    look through, which is half the time of loading 100,000 machines.
    """

    def __init__(self) -> None:
        self.slots = 0
        """Slots in use or once used."""
        self._slot_of: dict[str, int] = {}
        self._text_of: list[str] = []
        self._unused: list[int] = []

    def __len__(self) -> int:
        return len(self._slot_of)

    def slot(self, cluster: str, name: str) -> int | None:
        """Where the machine stands."""
        return self._slot_of.get(f"{cluster}{_BETWEEN}{name}")

    def machine(self, slot: int) -> tuple[str, str]:
        """Cluster and name of the machine that stands, or last stood, there."""
        cluster, _, name = self._text_of[slot].partition(_BETWEEN)
        return cluster, name

    def texts(self) -> list[str]:
        """Every slot's machine as a text; "" where a slot is not in use."""
        found = list(self._text_of)
        for slot in self._unused:
            found[slot] = ""
        return found

    def lay_out(self, clusters: Sequence[str], names: Sequence[str], order: Slots) -> Slots:
        """Give an empty table's slots in this order of the machines; each machine's slot."""
        texts = list(map(_BETWEEN.join, zip(clusters, names, strict=True)))
        slots = np.empty_like(order)
        slots[order] = np.arange(len(order))
        self._slot_of = dict(zip(texts, slots.tolist(), strict=True))
        assert len(self._slot_of) == len(order), "a machine stands twice in the columns"
        self._text_of = list(map(texts.__getitem__, order.tolist()))
        self._unused = []
        self.slots = len(order)
        return slots

    def place(self, clusters: Sequence[str], names: Sequence[str]) -> Slots:
        """Each machine's slot; those that have none are given one."""
        known = self._slot_of
        texts = list(map(_BETWEEN.join, zip(clusters, names, strict=True)))
        for text in texts:
            if text in known:
                continue
            if self._unused:
                slot = self._unused.pop()
                self._text_of[slot] = text
            else:
                slot = self.slots
                self.slots += 1
                self._text_of.append(text)
            known[text] = slot
        return np.fromiter(map(known.__getitem__, texts), np.intp, len(texts))

    def remove(self, machines: Iterable[tuple[str, str]]) -> list[int]:
        """Forget these machines; the slots that come free. Unknown ones are no mistake."""
        gone = []
        for cluster, name in machines:
            slot = self._slot_of.pop(f"{cluster}{_BETWEEN}{name}", None)
            if slot is not None:
                gone.append(slot)
        self._unused += sorted(gone, reverse=True)
        return gone

    def others(self, kept: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
        """Every machine but these."""
        texts = {f"{cluster}{_BETWEEN}{name}" for cluster, name in kept}
        return [self.machine(self._slot_of[text]) for text in self._slot_of.keys() - texts]
