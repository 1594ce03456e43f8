"""Which processes belong to which attempt, read from /proc. Standard library only: the warden,
which must stay small, uses it too.

A process belongs to an attempt when its environment carries the attempt's mark, when it shares a
session with one that belongs, when an ancestor of it belongs, or when an earlier look found that it
belongs. So a child that calls setsid is found by its mark, and one that drops its environment by
its session or its parents, also after these were killed.
"""

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

MARK_NAME = "DRYSTONE_MARK"
WAIT_FLAG = ":wait"
"""Ends the mark of an attempt that ignores the deadline."""
ENVIRONMENT_BYTES_MAX = 4 * 1024 * 1024
ANCESTORS_MAX = 1_000
FREEZE_PASSES_MAX = 20

_MARK = f"{MARK_NAME}=".encode()
_STOPPED = frozenset("Tt")
_GONE = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Process:
    """One living process. `born` (clock ticks since boot) tells two bearers of one pid apart."""

    pid: int
    parent: int
    session: int
    born: int
    stands_still: bool

    @property
    def bearer(self) -> tuple[int, int]:
        """What tells it from every other process, also of the same pid."""
        return self.pid, self.born


@dataclass(frozen=True, slots=True)
class Root:
    """The main child of an attempt: the head of its session."""

    pid: int
    attempt: str
    waits: bool = False


def mark_of(keeper_mark: str, attempt: str, waits: bool) -> str:
    """What the environment of an attempt's processes carries."""
    return f"{keeper_mark}:{attempt}{WAIT_FLAG if waits else ''}"


def processes() -> dict[int, Process]:
    """Every living process; zombies have ended and are left out."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def read_process(pid: int) -> Process | None:
    """One process, or None when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
            line = stat.read(4_096)
    except OSError:
        return None
    # The name stands in parentheses and may hold any byte, parentheses too.
    words = line[line.rfind(b")") + 2 :].split()
    state = chr(words[0][0])
    if state in _GONE:
        return None
    return Process(
        pid=pid,
        parent=int(words[1]),
        session=int(words[3]),
        born=int(words[19]),
        stands_still=state in _STOPPED,
    )


def lives(pid: int) -> bool:
    """False from the moment it begins to exit: its environment is gone a little before itself."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as pages:
            return not pages.read().startswith(b"0 ")
    except OSError:
        return False


def peak_kib(pid: int) -> int:
    """The highest resident size so far of one process; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def read_mark(pid: int) -> str | None:
    """The mark in a process's environment, as it was at its exec."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            read = environment.read(ENVIRONMENT_BYTES_MAX)
    except OSError:
        return None
    at = 0 if read.startswith(_MARK) else read.find(b"\0" + _MARK) + 1
    if at == 0 and not read.startswith(_MARK):
        return None
    end = read.find(b"\0", at)
    return read[at + len(_MARK) : end if end >= 0 else len(read)].decode(errors="replace")


def trees(
    there: Mapping[int, Process],
    prefix: str,
    roots: Iterable[Root] = (),
    known: Mapping[tuple[int, int], Root] | None = None,
) -> dict[int, Root]:
    """The attempt of every process that belongs to one whose mark begins with `prefix`.

    `known`: by bearer, what an earlier look found.
    """
    by_pid = {root.pid: root for root in roots}
    known = known or {}
    owners: dict[int, Root | None] = {}
    for pid, process in there.items():
        owner = by_pid.get(pid) or known.get(process.bearer)
        owner = owner or _by_mark(pid, prefix) or by_pid.get(process.session)
        if owner is not None:
            owners[pid] = owner
    by_session = {there[pid].session: owner for pid, owner in owners.items()}
    for pid, process in there.items():
        if process.session in by_session:
            owners.setdefault(pid, by_session[process.session])
    for pid in there:
        _inherit(pid, there, owners)
    return {pid: owner for pid, owner in owners.items() if owner is not None}


def _by_mark(pid: int, prefix: str) -> Root | None:
    mark = read_mark(pid)
    if mark is None or not mark.startswith(prefix):
        return None
    attempt = mark[mark.index(":") + 1 :] if ":" in mark else ""
    waits = attempt.endswith(WAIT_FLAG)
    return Root(0, attempt.removesuffix(WAIT_FLAG), waits)


def _inherit(pid: int, there: Mapping[int, Process], owners: dict[int, Root | None]) -> None:
    path: list[int] = []
    while pid in there and pid not in owners and len(path) < ANCESTORS_MAX:
        path.append(pid)
        pid = there[pid].parent
    owner = owners.get(pid)
    for passed in path:
        owners[passed] = owner


def send(pid: int, number: signal.Signals) -> bool:
    """Signal one process; False when it has ended or may not be signalled."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_pass(prefix: str, roots: Iterable[Root] = ()) -> int:
    """SIGKILL everything that belongs; how many there were. To be repeated until 0."""
    owned = trees(processes(), prefix, roots)
    for pid in owned:
        send(pid, signal.SIGKILL)
    return len(owned)


def freeze_passes(
    prefix: str, roots: Callable[[], Iterable[Root]], go_on: Callable[[], bool]
) -> set[int]:
    """SIGSTOP everything that belongs and does not wait, until two looks find it all standing.

    `go_on` is asked before each signal. The answer is what this call has stopped.
    """
    stopped: set[int] = set()
    for _ in range(FREEZE_PASSES_MAX):
        there = processes()
        awake = [
            pid
            for pid, owner in trees(there, prefix, roots()).items()
            if not owner.waits and not there[pid].stands_still
        ]
        if not awake:
            break
        for pid in awake:
            if not go_on():
                return stopped
            if send(pid, signal.SIGSTOP):
                stopped.add(pid)
    return stopped
