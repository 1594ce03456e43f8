"""One process that is kept running: started, started again when it dies, stopped when told.

Knows nothing of what the process does. Backoff is bounded, and so is the number of deaths in a row.
"""

import asyncio
import ctypes
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from drystone.stack.folder import ChildProcess

RESTART_S_FIRST = 0.2
RESTART_S_MAX = 10.0
STEADY_S = 30.0
"""A process that lived so long has not died in a row."""
DEATHS_MAX = 20
DEATHS_WINDOW_S = 120.0
LOG_BYTES_MAX = 16 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class DyingError(Exception):
    """A process died too often to be worth another start."""


@dataclass
class Child:
    """`say` hears one line for people about each death."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    say: Callable[[str], None]
    process: asyncio.subprocess.Process | None = None
    began: float = 0.0
    stopping: bool = False
    deaths: deque[float] = field(default_factory=lambda: deque(maxlen=DEATHS_MAX))

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.folder / "logs" / f"{self.name}.log"

    @property
    def known(self) -> ChildProcess | None:
        """The live process."""
        if self.process is None or self.process.returncode is not None:
            return None
        return ChildProcess(pid=self.process.pid, began=self.began)

    async def start(self) -> asyncio.subprocess.Process:
        """Execute it once, in a session of its own: Ctrl-C in a terminal reaches only us."""
        parent = os.getpid()

        def in_child() -> None:
            # Nothing outlives a supervisor that is killed.
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.environment),
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=in_child,
            )
        self.began = began_at(self.process.pid) or 0.0
        return self.process

    async def keep(self, changed: Callable[[], None]) -> None:
        """Start it again whenever it dies, until `stop`. DyingError when that helps nobody."""
        while True:
            process = await self.start()
            changed()
            born = time.monotonic()
            code = await process.wait()
            if self.stopping:
                return
            await self._mourn(code, time.monotonic() - born)

    async def _mourn(self, code: int, lived_s: float) -> None:
        if lived_s >= STEADY_S:
            self.deaths.clear()
        now = time.monotonic()
        self.deaths.append(now)
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        if len(self.deaths) == DEATHS_MAX and now - self.deaths[0] < DEATHS_WINDOW_S:
            raise DyingError(f"{self.name} died {DEATHS_MAX} times in a row, last with {how}")
        wait_s = min(RESTART_S_MAX, RESTART_S_FIRST * 2.0 ** (len(self.deaths) - 1))
        self.say(f"{self.name} ended ({how}); starting it again in {wait_s:.1f} s, see {self.log}")
        await asyncio.sleep(wait_s)

    async def stop(self, patience_s: float, hurry: asyncio.Event) -> None:
        """Terminate; kill it when it does not end in time, or when somebody is in a hurry."""
        self.stopping = True
        if self.process is None or self.process.returncode is not None:
            return
        self.process.terminate()
        waits = [asyncio.ensure_future(self.process.wait()), asyncio.ensure_future(hurry.wait())]
        await asyncio.wait(waits, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        if not waits[0].done():
            self.say(f"{self.name} did not stop in time: killed")
            self.process.kill()
        await waits[0]
        waits[1].cancel()

    def bound_log(self) -> None:
        """Keep one older piece of a log that has grown too long."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            # The process holds the file open for appending, so it is copied and cut, not renamed.
            self.log.with_suffix(".log.1").write_bytes(self.log.read_bytes())
            os.truncate(self.log, 0)

    def last_lines(self, lines: int = 20) -> str:
        """The end of its output, for a person to see what went wrong."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def began_at(pid: int) -> float | None:
    """When a process was started, by the kernel's count; None when there is none."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
