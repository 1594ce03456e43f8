"""The data folder of `drystone up`: who holds it, and what is known of the processes that serve it.

The lock is the operating system's and ends with its holder; the file beside it only tells more.
"""

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pydantic import BaseModel, Field, ValidationError

LOCK_NAME = "up.lock"
STATE_NAME = "up.json"
MESSAGE_PATH_CHARS_MAX = 300


class ChildProcess(BaseModel, frozen=True):
    """A process that `up` started; `began` tells it from a later one with the same number."""

    pid: int
    began: float


class UpState(BaseModel, frozen=True):
    """What a running `up` says about itself."""

    pid: int
    ready: bool = False
    api_url: str
    ui_url: str
    temporal_address: str
    machine: str
    children: dict[str, ChildProcess] = Field(default_factory=dict)


class FolderError(Exception):
    """The folder cannot be used; the text says why and what to do."""


def prepare(folder: Path, *, make_parents: bool) -> None:
    """Make the folder where it is missing, and prove that it can be written."""
    shown = str(folder)[:MESSAGE_PATH_CHARS_MAX]
    try:
        folder.mkdir(parents=make_parents, exist_ok=True)
        probe = folder / f".written-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except FileNotFoundError:
        parent = str(folder.parent)[:MESSAGE_PATH_CHARS_MAX]
        why = f"{parent} takes none" if folder.parent.is_dir() else f"{parent} is missing"
        raise FolderError(f"the data folder {shown} cannot be made: {why} (--data)") from None
    except (FileExistsError, NotADirectoryError):
        raise FolderError(f"the data folder {shown} is not a folder (--data)") from None
    except OSError as error:
        raise FolderError(
            f"the data folder {shown} cannot be written: {error.strerror} (--data)"
        ) from None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder alone; FolderError names the process that has it already."""
    with (folder / LOCK_NAME).open("a+") as lock:
        if not _try_lock(lock):
            state = read_state(folder)
            by = f" (process {state.pid}, {state.api_url})" if state else ""
            raise FolderError(
                f"the data folder {folder} is in use by another `drystone up`{by}: "
                f"stop it with `drystone down --data {shlex.quote(str(folder))}`, "
                "or give another folder with --data"
            )
        yield


def is_held(folder: Path) -> bool:
    """True while an `up` holds the folder."""
    try:
        with (folder / LOCK_NAME).open("r+") as lock:
            return not _try_lock(lock)
    except OSError:
        return False


def read_state(folder: Path) -> UpState | None:
    """What the last `up` on this folder wrote, if it can be read."""
    try:
        return UpState.model_validate_json((folder / STATE_NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def write_state(folder: Path, state: UpState) -> None:
    """Replace the state in one step: readers see the old one or the new one."""
    beside = folder / f"{STATE_NAME}.new"
    beside.write_text(state.model_dump_json())
    beside.replace(folder / STATE_NAME)


def forget_state(folder: Path) -> None:
    """Nothing runs any more."""
    (folder / STATE_NAME).unlink(missing_ok=True)


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
