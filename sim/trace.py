"""What happened, one aligned line per event, and the hash by which two runs are compared."""

import hashlib
from collections import Counter, deque
from typing import TextIO

from sim.clock import SECOND, Clock

KEPT_LINES_MAX = 400
"""Shown when a check fails and the run was not traced."""


class Trace:
    """The lines of one run."""

    def __init__(self, clock: Clock, out: TextIO | None = None) -> None:
        self._clock = clock
        self._out = out
        self._hash = hashlib.blake2b(digest_size=8)
        self.kept: deque[str] = deque(maxlen=KEPT_LINES_MAX)
        self.counts: Counter[str] = Counter()
        """How often each thing happened: a simulation in which nothing happens proves nothing."""

    def line(self, who: str, what: str, detail: str = "") -> None:
        """`who` did or saw `what`."""
        text = f"{self._clock.now_us / SECOND:11.6f}  {who:<14} {what:<18} {detail}".rstrip()
        self._hash.update(text.encode())
        self.counts[what] += 1
        self.kept.append(text)
        if self._out is not None:
            self._out.write(text + "\n")

    @property
    def hash(self) -> str:
        """Equal for equal runs."""
        return self._hash.hexdigest()
