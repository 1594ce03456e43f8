"""What a benchmark says while it measures. Knows no figure."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Say = Callable[[str], None]
"""What is done from now on."""
_CLEAR_LINE = "\r\x1b[K"


def silent(_: str) -> None:
    """Where nobody is told."""


@contextmanager
def measuring(name: str, out: TextIO) -> Iterator[Say]:
    """On a terminal one line that changes, gone at the end; elsewhere a line at the beginning."""
    if not out.isatty():
        print(f"drystone bench: measuring {name} ...", file=out, flush=True)
        yield silent
        return
    began = time.monotonic()

    # Not with rich's bars: a thread draws those, and would take the interpreter's lock from what is
    # being measured.
    def say(what: str) -> None:
        spent_s = time.monotonic() - began
        out.write(f"{_CLEAR_LINE}measuring {name}, {spent_s:.0f} s: {what}")
        out.flush()

    say("begins")
    try:
        yield say
    finally:
        out.write(_CLEAR_LINE)
        out.flush()
