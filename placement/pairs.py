"""Labels and taints as bits: which machines bear which marks. Knows no operators."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from domain.constraint import LabelTerm, Taint
from domain.fleet import MachineColumns

At = slice | npt.NDArray[np.intp]
"""Which machines a question is about: all of them, or some slots."""
Mask = npt.NDArray[np.bool_]

RARE_MACHINES_MAX = 64
"""A mark on at most so many machines is a set of slots; one on more is a bit of every machine."""
TERMS_KEPT_MAX = 64
"""Label conditions whose answers are kept, value by value."""
_WORD_BITS = 64


class Mark(NamedTuple):
    """One thing that a machine bears: a label's value, that a label is there, or a taint."""

    kind: str
    key: str
    value: str


@dataclass(slots=True)
class _Answers:
    """Which values of its label meet a condition."""

    of: int = -1
    """The `_Values.version` that was asked."""
    met: dict[Mark, bool] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()


@dataclass(slots=True)
class _Values:
    """The values that a label has somewhere or, of the frequent ones, once had."""

    version: int = 0
    """Another number whenever a value has come or gone."""
    marks: dict[Mark, None] = field(default_factory=dict)


class MarkTable:
    """Marks by machine slot. Frequent marks are bits in columns, so that a filter is one `and`;
    rare ones (host names) are sets of slots, so that they cost no column."""

    def __init__(self) -> None:
        self._words = np.zeros((1, 0), dtype=np.uint64)
        self._bears = np.zeros(0, dtype=np.bool_)
        self._bits: dict[Mark, int] = {}
        self._rare: dict[Mark, set[int]] = {}
        self._held: dict[int, frozenset[Mark]] = {}
        self._kinds: dict[str, set[Mark]] = {}
        self._values: dict[str, _Values] = {}
        self.changes = 0
        """Another number whenever a machine bears something else."""
        self._answers: dict[LabelTerm, _Answers] = {}
        """In the order of last use."""

    @property
    def nbytes(self) -> int:
        """The size of the columns."""
        return self._words.nbytes + self._bears.nbytes

    def grow(self, slots: int) -> None:
        """Make room for so many slots."""
        wider = np.zeros((len(self._words), slots), dtype=np.uint64)
        wider[:, : self._words.shape[1]] = self._words
        self._words = wider
        longer = np.zeros(slots, dtype=np.bool_)
        longer[: len(self._bears)] = self._bears
        self._bears = longer

    def put(self, slot: int, marks: frozenset[Mark]) -> None:
        """From now on the machine bears exactly these."""
        before = self._held.get(slot, frozenset())
        if marks == before:
            return
        self.changes += 1
        for mark in before - marks:
            self._take_off(slot, mark)
        for mark in marks - before:
            self._put_on(slot, mark)
        self._bears[slot] = bool(marks)
        if marks:
            self._held[slot] = marks
        else:
            self._held.pop(slot, None)

    def put_columns(self, columns: MachineColumns, slots: npt.NDArray[np.intp]) -> Mask:
        """What many machines bear: True for those that bore something else before."""
        marking = np.array(columns.marking, dtype=np.intp)
        changed = np.zeros(len(slots), dtype=np.bool_)
        order = np.argsort(marking, kind="stable")
        edges = np.searchsorted(marking[order], np.arange(len(columns.markings) + 1))
        for code, (labels, taints) in enumerate(columns.markings):
            some = order[edges[code] : edges[code + 1]]
            changed[some] = self.put_many(slots[some], _marks_of(labels, taints))
        return changed

    def put_many(self, slots: npt.NDArray[np.intp], marks: frozenset[Mark]) -> Mask:
        """`put` on many machines: True for those that bore something else before."""
        bare = ~self._bears[slots]
        if len(slots) > RARE_MACHINES_MAX and bare.all():
            self.changes += 1
            if marks:
                self._put_on_bare(slots, marks)
            return np.full(len(slots), bool(marks))
        there = slots.tolist()
        nothing: frozenset[Mark] = frozenset()
        changed = [self._held.get(slot, nothing) != marks for slot in there]
        for slot in there:
            self.put(slot, marks)
        return np.array(changed, dtype=np.bool_)

    def of(self, slot: int) -> frozenset[Mark]:
        """What the machine bears."""
        return self._held.get(slot, frozenset())

    def known(self, kind: str) -> frozenset[Mark]:
        """Every mark of a kind (but labels) that some machine bears or, of the frequent ones, once
        bore."""
        return frozenset(self._kinds.get(kind, ()))

    def meeting(self, term: LabelTerm) -> tuple[Mark, ...]:
        """The values of its label that meet a condition: each is asked once, however many machines
        have it, and not again while it stays."""
        values = self._values.get(term.key)
        if values is None:
            return ()
        answers = self._answers.pop(term, None)
        if answers is None:
            answers = _Answers()
            if len(self._answers) >= TERMS_KEPT_MAX:
                del self._answers[next(iter(self._answers))]
        self._answers[term] = answers
        if answers.of != values.version:
            known = answers.met
            answers.met = {
                mark: known[mark] if mark in known else term.accepts(mark.value)
                for mark in values.marks
            }
            answers.marks = tuple(mark for mark, met in answers.met.items() if met)
            answers.of = values.version
        return answers.marks

    def codes(self, key: str, slots: int) -> tuple[npt.NDArray[np.int32], list[str]]:
        """By slot, the value of a label as a code, -1 where it is missing; and the values."""
        codes = np.full(slots, -1, dtype=np.int32)
        values = self._values.get(key, _Values()).marks
        for code, mark in enumerate(values):
            bit = self._bits.get(mark)
            if bit is None:
                codes[list(self._rare.get(mark, ()))] = code
            else:
                word = self._words[bit // _WORD_BITS, :slots]
                codes[(word & np.uint64(1 << bit % _WORD_BITS)) != 0] = code
        return codes, [mark.value for mark in values]

    def any_of(self, marks: Iterable[Mark], at: At, slots: int) -> Mask:
        """True where a machine bears at least one of these; `slots` is how many there are."""
        need: dict[int, int] = {}
        rare: set[int] = set()
        for mark in marks:
            bit = self._bits.get(mark)
            if bit is None:
                rare |= self._rare.get(mark, set())
            else:
                need[bit // _WORD_BITS] = need.get(bit // _WORD_BITS, 0) | 1 << bit % _WORD_BITS
        found = np.zeros(slots, dtype=np.bool_)
        found[np.fromiter(rare, dtype=np.intp, count=len(rare))] = True
        answer = found[at]
        for word, bits in need.items():
            answer = answer | ((self._words[word, :slots][at] & np.uint64(bits)) != 0)
        return answer

    def _put_on_bare(self, slots: npt.NDArray[np.intp], marks: frozenset[Mark]) -> None:
        """Many machines that bear nothing yet, so that every mark of theirs is a frequent one."""
        for mark in marks:
            if mark not in self._bits:
                self._come(mark)
                self._promote(mark, self._rare.pop(mark, set()))
            bit = self._bits[mark]
            self._words[bit // _WORD_BITS, slots] |= np.uint64(1 << bit % _WORD_BITS)
        self._held.update(dict.fromkeys(slots.tolist(), marks))
        self._bears[slots] = True

    def _put_on(self, slot: int, mark: Mark) -> None:
        bit = self._bits.get(mark)
        if bit is not None:
            self._words[bit // _WORD_BITS, slot] |= np.uint64(1 << bit % _WORD_BITS)
            return
        slots = self._rare.setdefault(mark, set())
        if not slots:
            self._come(mark)
        slots.add(slot)
        if len(slots) > RARE_MACHINES_MAX:
            self._promote(mark, self._rare.pop(mark))

    def _take_off(self, slot: int, mark: Mark) -> None:
        bit = self._bits.get(mark)
        if bit is not None:
            self._words[bit // _WORD_BITS, slot] &= ~np.uint64(1 << bit % _WORD_BITS)
            return
        slots = self._rare[mark]
        slots.discard(slot)
        if not slots:
            del self._rare[mark]
            self._go(mark)

    def _come(self, mark: Mark) -> None:
        if mark.kind != "label":
            self._kinds.setdefault(mark.kind, set()).add(mark)
            return
        values = self._values.setdefault(mark.key, _Values())
        if mark not in values.marks:
            values.marks[mark] = None
            values.version += 1

    def _go(self, mark: Mark) -> None:
        if mark.kind != "label":
            self._kinds[mark.kind].discard(mark)
            return
        values = self._values[mark.key]
        del values.marks[mark]
        values.version += 1

    def _promote(self, mark: Mark, slots: set[int]) -> None:
        bit = len(self._bits)
        self._bits[mark] = bit
        if bit // _WORD_BITS == len(self._words):
            self._words = np.vstack([self._words, np.zeros_like(self._words[:1])])
        where = np.fromiter(slots, dtype=np.intp, count=len(slots))
        self._words[bit // _WORD_BITS, where] |= np.uint64(1 << bit % _WORD_BITS)


def _marks_of(labels: Mapping[str, str], taints: Iterable[Taint]) -> frozenset[Mark]:
    return frozenset(
        [Mark("label", key, value) for key, value in labels.items()]
        + [Mark("has", key, "") for key in labels]
        + [Mark("taint", taint.key, taint.value) for taint in taints]
    )
