"""The keeper's own children, and those that fell to it because their parents died before them.

Everything left of an attempt whose main child has exited hangs below a child of the keeper, since
the keeper is a subreaper: so a look at its children tells cheaply that nothing is left.
"""

import contextlib
import ctypes
import os
from pathlib import Path

LOOKS_MAX = 100

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """From now on, orphans among our descendants become our children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def adopted(known: set[int]) -> set[int] | None:
    """Living children that are not `known`; the ended ones among them are reaped on the way.

    None when the kernel does not tell (CONFIG_PROC_CHILDREN): then only a census can.
    """
    strangers: set[int] = set()
    for _ in range(LOOKS_MAX):
        try:
            strangers = _children() - known
        except FileNotFoundError:
            return None
        living = {pid for pid in strangers if not _reaped(pid)}
        # One that ended after the list was read may have left a child that is not in it.
        if living == strangers:
            break
    return strangers


def _children() -> set[int]:
    lists = [task / "children" for task in Path("/proc/self/task").iterdir()]
    return {int(pid) for children in lists for pid in children.read_bytes().split()}


def _reaped(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True
