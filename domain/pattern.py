"""Regular expressions whose cost is known beforehand: linear in the text, whatever the pattern.

Each character of a pattern is a *position*; which positions may follow which is worked out once
(Glushkov 1961), and a text is read by a set of positions, kept as bits of one number. There is no
backtracking, and so nothing that needs it: no back-references, no looking around.
"""

from dataclasses import dataclass, field
from functools import lru_cache

PATTERN_CHARS_MAX = 253
POSITIONS_MAX = 128
"""Characters of a pattern, those under a count as often as it says: `[0-9]{1,3}` has three."""
DEPTH_MAX = 16
STEPS_KEPT_MAX = 4_096
"""Steps that a pattern remembers; a text that needs others takes them one by one."""
PATTERNS_KEPT_MAX = 256
_BEGIN, _END = "begin", "end"
"""Symbols before and after each text: what `^` and `$` stand for."""
_CLASSES = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": ((" ", " "), ("\t", "\r")),
}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r"}

Ranges = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Symbol:
    """One character out of these, or out of all others; or the edge of the text."""

    ranges: Ranges = ()
    negated: bool = False
    edge: str = ""

    def accepts(self, symbol: str) -> bool:
        if self.edge or len(symbol) > 1:
            return symbol == self.edge
        return any(low <= symbol <= high for low, high in self.ranges) != self.negated


@dataclass(frozen=True, slots=True)
class _Chain:
    parts: tuple["_Part", ...]


@dataclass(frozen=True, slots=True)
class _Either:
    options: tuple["_Part", ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: "_Part"
    least: int
    most: int | None


_Part = _Symbol | _Chain | _Either | _Repeat


@dataclass(slots=True)
class _Ends:
    """Where a part begins and ends, as bits of positions."""

    first: int = 0
    last: int = 0
    empty: bool = True
    """It is met by nothing at all, too."""


@dataclass(slots=True)
class Pattern:
    """A compiled pattern; `found_in` answers."""

    _symbols: list[_Symbol] = field(default_factory=list)
    _follow: list[int] = field(default_factory=list)
    _ends: _Ends = field(default_factory=_Ends)
    _accepting: dict[str, int] = field(default_factory=dict)
    _steps: dict[tuple[int, str], int] = field(default_factory=dict)

    def found_in(self, text: str) -> bool:
        """True when the pattern is met somewhere in the text."""
        if self._ends.empty:
            return True
        steps, there = self._steps, 0
        for symbol in (_BEGIN, *text, _END):
            after = steps.get((there, symbol))
            if after is None:
                after = self._step(there, symbol)
            if after & self._ends.last:
                return True
            there = after
        return False

    def _step(self, there: int, symbol: str) -> int:
        accepting = self._accepting.get(symbol)
        if accepting is None:
            if len(self._accepting) >= STEPS_KEPT_MAX:
                self._accepting.clear()
            bits = (one.accepts(symbol) << at for at, one in enumerate(self._symbols))
            accepting = self._accepting[symbol] = sum(bits)
        reach, left = self._ends.first, there
        while left:
            lowest = left & -left
            reach |= self._follow[lowest.bit_length() - 1]
            left ^= lowest
        after = reach & accepting
        if len(self._steps) >= STEPS_KEPT_MAX:
            self._steps.clear()
        self._steps[there, symbol] = after
        return after

    def add(self, part: _Part) -> _Ends:
        """Take a part in: its positions come after those that are there."""
        match part:
            case _Symbol():
                self._symbols.append(part)
                self._follow.append(0)
                bit = 1 << (len(self._symbols) - 1)
                return _Ends(bit, bit, empty=False)
            case _Chain():
                ends = _Ends()
                for one in part.parts:
                    ends = self._joined(ends, self.add(one))
                return ends
            case _Either():
                options = [self.add(one) for one in part.options]
                first, last = 0, 0
                for ends in options:
                    first, last = first | ends.first, last | ends.last
                return _Ends(first, last, empty=any(ends.empty for ends in options))
            case _Repeat():
                return self._repeated(part)

    def close(self, ends: _Ends) -> None:
        """The whole pattern begins and ends there."""
        self._ends = ends

    def _joined(self, one: _Ends, then: _Ends) -> _Ends:
        self._link(one.last, then.first)
        return _Ends(
            one.first | (then.first if one.empty else 0),
            then.last | (one.last if then.empty else 0),
            empty=one.empty and then.empty,
        )

    def _repeated(self, part: _Repeat) -> _Ends:
        copies = max(part.least, 1) if part.most is None else part.most
        ends = _Ends()
        for number in range(copies):
            one = self.add(part.part)
            if part.most is None and number == copies - 1:
                self._link(one.last, one.first)
            if number >= part.least:
                one.empty = True
            ends = self._joined(ends, one)
        return ends

    def _link(self, last: int, first: int) -> None:
        while last:
            lowest = last & -last
            self._follow[lowest.bit_length() - 1] |= first
            last ^= lowest


@lru_cache(maxsize=PATTERNS_KEPT_MAX)
def pattern(text: str) -> Pattern:
    """Raises ValueError, fit to be shown, for what is no pattern of ours or too large a one."""
    if len(text) > PATTERN_CHARS_MAX:
        raise ValueError(f"a pattern must have at most {PATTERN_CHARS_MAX} characters")
    part = _Reader(text).whole()
    if _size(part) > POSITIONS_MAX:
        raise ValueError(f"a pattern must have at most {POSITIONS_MAX} characters, counts included")
    found = Pattern()
    found.close(found.add(part))
    return found


def _size(part: _Part) -> int:
    match part:
        case _Symbol():
            return 1
        case _Chain():
            return sum(_size(one) for one in part.parts)
        case _Either():
            return sum(_size(one) for one in part.options)
        case _Repeat():
            # Counts of nothing, such as (){9999}, are counted as well: they too take time to build.
            return max(_size(part.part), 1) * max(part.least, part.most or 1, 1)


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> _Part:
        part = self._either()
        if self._at < len(self._text):
            raise ValueError("a pattern has a ')' without its '('")
        return part

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        found = self._peek()
        if not found:
            raise ValueError("a pattern must not end in the middle of something")
        self._at += 1
        return found

    def _either(self) -> _Part:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"a pattern must have at most {DEPTH_MAX} groups inside each other")
        options = [self._chain()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._chain())
        self._depth -= 1
        return _Either(tuple(options)) if len(options) > 1 else options[0]

    def _chain(self) -> _Part:
        parts: list[_Part] = []
        if self._depth == 1 and self._peek() == "^":
            self._at += 1
            parts.append(_Symbol(edge=_BEGIN))
        while self._peek() not in ("", "|", ")"):
            following = self._text[self._at + 1 : self._at + 2]
            if self._depth == 1 and self._peek() == "$" and following in ("", "|"):
                self._at += 1
                parts.append(_Symbol(edge=_END))
            else:
                parts.append(self._counted(self._one()))
        return _Chain(tuple(parts))

    def _one(self) -> _Part:
        match self._take():
            case "(":
                return self._group()
            case "[":
                return self._set()
            case ".":
                return _Symbol((("\n", "\n"),), negated=True)
            case "^" | "$" as edge:
                raise ValueError(f"a pattern may have a '{edge}' at its edge only: write \\{edge}")
            case "\\":
                return self._escaped()
            case "*" | "+" | "?" | "{" as count:
                raise ValueError(f"a pattern has a '{count}' with nothing before it")
            case plain:
                return _Symbol(((plain, plain),))

    def _group(self) -> _Part:
        if self._peek() == "?":
            if self._text[self._at : self._at + 2] != "?:":
                raise ValueError("a pattern may group with ( ) and (?: ) only")
            self._at += 2
        part = self._either()
        if self._peek() != ")":
            raise ValueError("a pattern has a '(' without its ')'")
        self._at += 1
        return part

    def _escaped(self) -> _Symbol:
        letter = self._take()
        if letter.lower() in _CLASSES:
            return _Symbol(_CLASSES[letter.lower()], negated=letter.isupper())
        if letter in _CONTROL:
            return _Symbol(((_CONTROL[letter], _CONTROL[letter]),))
        if letter.isalnum():
            raise ValueError(f"a pattern must not hold \\{letter}")
        return _Symbol(((letter, letter),))

    def _set(self) -> _Symbol:
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[str, str]] = []
        while self._peek() != "]" or not ranges:
            low = self._of_set(ranges)
            if low is None:
                continue
            high = low
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                high = self._of_set(ranges) or ""
            if high < low:
                raise ValueError("a pattern has a range whose end comes before its begin")
            ranges.append((low, high))
        self._at += 1
        return _Symbol(tuple(ranges), negated)

    def _of_set(self, ranges: list[tuple[str, str]]) -> str | None:
        """A character of a set; None where a class such as \\d has been added to `ranges`."""
        letter = self._take()
        if letter != "\\":
            return letter
        symbol = self._escaped()
        if symbol.negated:
            raise ValueError("a pattern must not hold \\D, \\W or \\S between [ and ]")
        if len(symbol.ranges) == 1 and symbol.ranges[0][0] == symbol.ranges[0][1]:
            return symbol.ranges[0][0]
        ranges.extend(symbol.ranges)
        return None

    def _counted(self, part: _Part) -> _Part:
        match self._peek():
            case "*":
                least, most = 0, None
            case "+":
                least, most = 1, None
            case "?":
                least, most = 0, 1
            case "{":
                return self._lazy(self._counts(part))
            case _:
                return part
        self._at += 1
        return self._lazy(_Repeat(part, least, most))

    def _lazy(self, part: _Part) -> _Part:
        """A question mark after a count says how to look, and not what is found."""
        if self._peek() == "?":
            self._at += 1
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise ValueError("a pattern has two counts after each other")
        return part

    def _counts(self, part: _Part) -> _Part:
        end = self._text.find("}", self._at)
        written = self._text[self._at + 1 : end] if end > 0 else ""
        least, comma, most = written.partition(",")
        if not _is_count(least) or not (most == "" or _is_count(most)):
            raise ValueError("a pattern counts with {3}, {1,3} or {1,}")
        self._at = end + 1
        if not comma:
            return _Repeat(part, int(least), int(least))
        if most and int(most) < int(least):
            raise ValueError("a pattern has a count whose end comes before its begin")
        return _Repeat(part, int(least), int(most) if most else None)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text or "0") <= POSITIONS_MAX
