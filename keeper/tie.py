"""The keeper's end of the pipe to its warden: starts it, tells it the deadline, starts it anew."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from runtime.telemetry import logger

RESTART_S_MIN = 0.05
RESTART_S_MAX = 5.0
STEADY_S = 10.0
"""A warden that lived this long was not the fault: the next one is started at once."""


class Tie:
    """Keeps one warden alive. Deadlines are lines on a pipe whose end means our death."""

    def __init__(self, keeper_mark: str, journal: Path, instance: str) -> None:
        self._command = [
            *(sys.executable, "-P", "-m", "keeper.warden"),
            *(keeper_mark, str(journal), instance),
        ]
        self._loop = asyncio.get_running_loop()
        self._deadline_ms: int | None = None
        self._restart_s = RESTART_S_MIN
        self._restart: asyncio.TimerHandle | None = None
        self._warden: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._exit_fd = -1
        self._started_s = 0.0
        self._start()

    def pids(self) -> set[int]:
        """The warden is our child, but of no attempt."""
        return set() if self._warden is None else {self._warden.pid}

    def move_deadline(self, deadline_ms: int) -> None:
        """Until then the trees may run, whatever happens to us."""
        self._deadline_ms = deadline_ms
        if self._warden is not None:
            self._say()

    def close(self) -> None:
        """Let it go: it kills what is left, and ends."""
        if self._restart is not None:
            self._restart.cancel()
        self._let_go()

    def _start(self) -> None:
        self._restart = None
        inner, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        # A session of its own: a terminal's Ctrl-C must not reach it.
        self._warden = subprocess.Popen(
            self._command, stdin=inner, stdout=subprocess.DEVNULL, start_new_session=True
        )
        os.close(inner)
        self._started_s = self._loop.time()
        self._exit_fd = os.pidfd_open(self._warden.pid)
        self._loop.add_reader(self._exit_fd, self._died)
        if self._deadline_ms is not None:
            self._say()

    def _say(self) -> None:
        try:
            os.write(self._pipe, b"%d\n" % (self._deadline_ms or 0))
        except (BrokenPipeError, BlockingIOError) as error:
            # Dead, and then it is started again with the deadline; or stopped, and then the pipe
            # filled up with deadlines that are all earlier: it errs on the safe side.
            logger().warning("warden not told", error=str(error))

    def _died(self) -> None:
        assert self._warden is not None
        status = self._warden.wait()
        logger().warning("warden died", status=status)
        if self._loop.time() - self._started_s > STEADY_S:
            self._restart_s = RESTART_S_MIN
        self._let_go()
        self._restart = self._loop.call_later(self._restart_s, self._start)
        self._restart_s = min(RESTART_S_MAX, self._restart_s * 2)

    def _let_go(self) -> None:
        if self._warden is None:
            return
        self._loop.remove_reader(self._exit_fd)
        os.close(self._exit_fd)
        os.close(self._pipe)
        if self._warden.poll() is None:
            # Ours to reap no more: it outlives us by what it has to kill.
            self._warden.returncode = 0
        self._warden = None
