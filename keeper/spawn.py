"""How a command becomes a process: its environment, its working folder, and typed reasons why not.

Nothing of Python runs between fork and exec, so an attempt costs its keeper a system call or two.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from domain.ids import split_attempt_id, split_task_key
from domain.protocol import StartAttempt
from domain.reasons import Reason
from domain.task import OnLoss
from keeper.attempts import LaunchFailed
from keeper.census import MARK_NAME, mark_of

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME")
"""What an attempt sees of the keeper's own environment; everything else is its own."""
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
WORKING_FOLDER_NAME = "work"
DETAIL_CHARS_MAX = 500

_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
_ATTEMPT_ID = re.compile(f"{_NAME}/{_NAME}#[0-9]+")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is equal for all attempts of one keeper."""

    folder: Path
    """Under it, a folder per attempt."""
    keeper_mark: str
    cluster: str
    machine: str
    inherited: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Streams:
    """The child's ends of its standard streams."""

    stdin: int
    stdout: int
    stderr: int


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The small base that attempts inherit."""
    base = {name: environment[name] for name in INHERITED if name in environment}
    return {"PATH": DEFAULT_PATH, **base}


def is_attempt_id(text: str) -> bool:
    """True for what may become part of a path."""
    return _ATTEMPT_ID.fullmatch(text) is not None


def attempt_folder(folder: Path, attempt: str) -> Path:
    """Where an attempt's output is, and its working folder unless it has one of its own."""
    assert is_attempt_id(attempt), attempt
    key, number = split_attempt_id(attempt)
    team, task_id = split_task_key(key)
    return folder / team / f"{task_id}#{number}"


def spawn(
    start: StartAttempt, around: Surroundings, streams: Streams
) -> subprocess.Popen[bytes] | LaunchFailed:
    """Start the command as head of its own session."""
    if not is_attempt_id(start.attempt):
        return _failed(start, Reason.CANNOT_START, "not the id of an attempt")
    try:
        folder = working_folder(start, around)
    except OSError as error:
        return _failed(start, Reason.WORKING_FOLDER, str(error))
    try:
        return subprocess.Popen(
            start.spec.command,
            cwd=folder,
            env=environment(start, around),
            stdin=streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            start_new_session=True,
            # Every descriptor of ours is closed at exec anyway; looking for more costs time.
            close_fds=False,
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        gone = error.filename == folder
        reason = Reason.WORKING_FOLDER if gone else Reason.NO_SUCH_COMMAND
        return _failed(start, reason, f"{start.spec.command[0]}: {error.strerror}")
    except (OSError, ValueError) as error:
        return _failed(start, Reason.CANNOT_START, str(error))


def environment(start: StartAttempt, around: Surroundings) -> dict[str, str]:
    """The whole environment of the attempt's main child."""
    spec = start.spec
    waits = spec.on_loss is OnLoss.WAIT
    return {
        # First, so that looking for it stays cheap however large the rest is.
        MARK_NAME: mark_of(around.keeper_mark, start.attempt, waits),
        **around.inherited,
        **spec.env,
        "DRYSTONE_TASK_ID": spec.id,
        "DRYSTONE_ATTEMPT": str(start.number),
        "DRYSTONE_TEAM": spec.team,
        "DRYSTONE_CLUSTER": around.cluster,
        "DRYSTONE_MACHINE": around.machine,
    }


def working_folder(start: StartAttempt, around: Surroundings) -> str:
    """Make the folder the command runs in; a relative one lies in the attempt's own folder.

    Raises OSError where it cannot be made or written, or where a relative one leaves that folder.
    """
    own = attempt_folder(around.folder, start.attempt)
    own.mkdir(parents=True, exist_ok=True)
    wanted = start.spec.working_dir or WORKING_FOLDER_NAME
    folder = own / wanted
    # Resolved, so that neither `..` nor a symbolic link leads out of it.
    if not os.path.isabs(wanted) and not folder.resolve().is_relative_to(own.resolve()):
        raise PermissionError(f"{wanted}: leaves the attempt's folder")
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder}: not writable")
    return str(folder)


def _failed(start: StartAttempt, reason: Reason, detail: str) -> LaunchFailed:
    return LaunchFailed(start.attempt, reason, detail[:DETAIL_CHARS_MAX])
