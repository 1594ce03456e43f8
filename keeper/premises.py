"""The folder of one keeper: who may use it, the mark that its attempts carry, and what is swept."""

import fcntl
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from keeper.spawn import attempt_folder

FOLDERS_KEPT_MAX = 5_000
"""Folders of forgotten attempts; the oldest are swept first."""
FOLDERS_PER_SWEEP_MAX = 500


class FolderError(Exception):
    """The folder cannot be used; the text says why, for people."""


@dataclass(frozen=True, slots=True)
class Premises:
    """A locked folder. The lock lasts as long as the process."""

    folder: Path
    mark: str
    lock: int

    @property
    def journal(self) -> Path:
        """The keeper's journal."""
        return self.folder / "journal.jsonl"

    @property
    def attempts(self) -> Path:
        """A folder per attempt."""
        return self.folder / "attempts"


def occupy(folder: Path, fresh_mark: str) -> Premises:
    """Make and lock the folder; its mark is the one it has, or the fresh one."""
    try:
        (folder / "attempts").mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise FolderError(f"the folder {folder} cannot be used: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(lock, 20).decode().strip()
        os.close(lock)
        text = f"another keeper (process {owner or 'unknown'}) uses the folder {folder}"
        raise FolderError(text) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    path = folder / "mark"
    if not path.exists() or not path.read_text().strip():
        fresh = folder / "mark.new"
        fresh.write_text(fresh_mark)
        fresh.replace(path)
    return Premises(folder, path.read_text().strip(), lock)


def sweep(attempts: Path, held: set[str], older_than_s: float, now_s: float) -> int:
    """Delete folders of attempts that nobody holds, when they are too old or too many."""
    needed = {attempt_folder(attempts, attempt) for attempt in held}
    ages: list[tuple[float, Path]] = []
    for team in _folders(attempts):
        for folder in _folders(team):
            if folder not in needed:
                ages.append((now_s - folder.stat().st_mtime, folder))
    ages.sort(key=lambda pair: pair[0], reverse=True)
    surplus = max(0, len(ages) - FOLDERS_KEPT_MAX)
    doomed = [f for place, (age, f) in enumerate(ages) if place < surplus or age > older_than_s]
    for folder in doomed[:FOLDERS_PER_SWEEP_MAX]:
        shutil.rmtree(folder, ignore_errors=True)
    return len(doomed)


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if stat.S_ISDIR(path.lstat().st_mode)]
    except FileNotFoundError:
        return []
