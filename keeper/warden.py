"""The warden: what stays when its keeper cannot act. Kills every marked tree when the pipe from the
keeper ends, and freezes them when a deadline passes that the keeper has not moved in time.

A small process of its own, standard library only. Its standard input is the pipe; a line is the
deadline in milliseconds of the boot clock. It goes by the pipe alone: a parent-death signal would
not reach grandchildren, and signals of a terminal do not concern it.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path

from keeper import census
from keeper.roots import roots

LATE_MS = 500
"""How long after the deadline the keeper may still freeze everything itself."""
KILL_S_MAX = 120.0
EMPTY_PASSES = 3
PASS_PAUSE_S = 0.05
POLL_MS = 1_000
"""A boot clock goes on through a suspend, a poll does not: so look at it at least this often."""
LINE_BYTES_MAX = 65_536


def boot_ms() -> int:
    """Milliseconds of the boot clock, which counts a suspended machine's time too."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Warden:
    """Watches one keeper through a pipe."""

    def __init__(self, pipe: int, keeper_mark: str, journal: Path, instance: str) -> None:
        self._pipe = pipe
        self._prefix = f"{keeper_mark}:"
        self._journal = journal
        self._instance = instance
        self._deadline_ms: int | None = None
        self._frozen_for_ms: int | None = None
        """The deadline that was answered by freezing."""
        self._stopped: set[int] = set()
        self._rest = b""
        os.set_blocking(pipe, False)
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)

    def run(self) -> None:
        """Until the keeper is gone and everything of it, too."""
        while self._listen(self._patience_ms()):
            if self._deadline_passed() and self._frozen_for_ms != self._deadline_ms:
                self._frozen_for_ms = self._deadline_ms
                self._freeze()
        kill_all(self._prefix, self._journal, self._instance)

    def _deadline_passed(self) -> bool:
        return self._deadline_ms is not None and boot_ms() >= self._deadline_ms + LATE_MS

    def _patience_ms(self) -> int | None:
        """Until the next look at the clock; None while there is nothing to look for."""
        if self._deadline_ms is None or self._frozen_for_ms == self._deadline_ms:
            return None
        return max(0, min(POLL_MS, self._deadline_ms + LATE_MS - boot_ms()))

    def _listen(self, patience_ms: int | None) -> bool:
        """Take what the keeper has said; False at the end of the pipe."""
        for _ in self._poll.poll(patience_ms):
            try:
                read = os.read(self._pipe, LINE_BYTES_MAX)
            except BlockingIOError:
                continue
            if not read:
                return False
            *whole, self._rest = (self._rest + read).split(b"\n")
            if whole:
                self._moved(int(whole[-1]))
        return True

    def _moved(self, deadline_ms: int) -> None:
        """The keeper lives and has a new deadline: undo what we did in its place."""
        self._deadline_ms = deadline_ms
        if not self._deadline_passed():
            for pid in self._stopped:
                census.send(pid, signal.SIGCONT)
            self._stopped.clear()

    def _freeze(self) -> None:
        """Stop everything; a word from the keeper in between ends it."""

        def go_on() -> bool:
            return not self._poll.poll(0)

        self._stopped |= census.freeze_passes(
            self._prefix, lambda: roots(self._journal, self._instance), go_on
        )


def kill_all(
    prefix: str, journal: Path, instance: str | None = None, seconds_max: float = KILL_S_MAX
) -> bool:
    """Kill whatever the mark or the journal finds, until looks in a row find nothing left."""
    empty = 0
    end = time.monotonic() + seconds_max
    while empty < EMPTY_PASSES and time.monotonic() < end:
        found = census.kill_pass(prefix, roots(journal, instance))
        empty = 0 if found else empty + 1
        time.sleep(PASS_PAUSE_S)
    return empty >= EMPTY_PASSES


def main() -> None:
    """`python -m keeper.warden MARK JOURNAL INSTANCE`, with the pipe as standard input."""
    keeper_mark, journal, instance = sys.argv[1:4]
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    Warden(sys.stdin.fileno(), keeper_mark, Path(journal), instance).run()


if __name__ == "__main__":
    main()
