"""The agent's memory on disk: JSON lines, appended before what they tell of is said to anybody.

Sync policy: what only this journal knows (`entries.URGENT`: admitted, stops, closed, tombstones,
epochs) is on the disk before its answer goes out; endings are, before their keeper is told to
forget them; the rest may be a moment late. A process killed at any instant loses nothing: writes
are not buffered.

Files: `tail-N.jsonl` is appended to; `snapshot-N.jsonl` says in the fewest lines what every tail
below N said. A torn last line (a full disk, a power cut) was never answered: it is dropped.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agent.entries import URGENT, Entry

LINES_BEFORE_COMPACTION = 20_000
LINE_BYTES_MAX = 4 * 1024 * 1024

_ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)


class JournalDamagedError(Exception):
    """A line that is not the last one cannot be read: somebody must look before we go on."""


class Journal:
    """The open journal of one agent. `read` first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._generation = 0
        self._file = -1
        self._lines = 0
        self._unsynced = False

    def read(self) -> list[Entry]:
        """Everything that was recorded; afterwards the journal can be appended to."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for half_made in self._folder.glob("*.new"):
            half_made.unlink()
        first = max(self._generations("snapshot"), default=0)
        entries = list(_entries(self._path("snapshot", first))) if first else []
        tails = sorted(n for n in self._generations("tail") if n >= first)
        for generation in tails:
            _cut_torn_line(self._path("tail", generation))
            more = list(_entries(self._path("tail", generation)))
            entries += more
            self._lines += len(more)
        self._open(tails[-1] if tails else max(first, 1))
        return entries

    def append(self, entries: Sequence[Entry]) -> bool:
        """Written when this returns; True when nobody may be told before `sync` has returned."""
        if not entries:
            return False
        text = b"".join(entry.model_dump_json().encode() + b"\n" for entry in entries)
        _write(self._file, text)
        self._lines += len(entries)
        self._unsynced = True
        return any(isinstance(entry, URGENT) for entry in entries)

    def sync(self) -> None:
        """On the disk when this returns. May be called in a thread."""
        if self._unsynced:
            self._unsynced = False
            os.fdatasync(self._file)

    @property
    def long(self) -> bool:
        """Is a snapshot worth its while?"""
        return self._lines >= LINES_BEFORE_COMPACTION

    def turn(self) -> int:
        """Go on in a new tail; the answer is for `compact`, with a snapshot of this instant."""
        self.sync()
        old, self._lines = self._file, 0
        self._open(self._generation + 1)
        os.close(old)
        return self._generation

    def compact(self, generation: int, entries: Iterable[Entry]) -> None:
        """Replace every tail below. May run in a thread while others append."""
        path = self._path("snapshot", generation)
        unfinished = path.with_suffix(".new")
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            for entry in entries:
                _write(file, entry.model_dump_json().encode() + b"\n")
            os.fdatasync(file)
        finally:
            os.close(file)
        unfinished.rename(path)
        self._sync_folder()
        for kind in ("snapshot", "tail"):
            for older in self._generations(kind):
                if older < generation:
                    self._path(kind, older).unlink()

    def close(self) -> None:
        """Nothing is lost by not calling it."""
        if self._file >= 0:
            self.sync()
            os.close(self._file)
            self._file = -1

    def _open(self, generation: int) -> None:
        self._generation = generation
        path = self._path("tail", generation)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _path(self, kind: str, generation: int) -> Path:
        return self._folder / f"{kind}-{generation:08}.jsonl"

    def _generations(self, kind: str) -> list[int]:
        paths = self._folder.glob(f"{kind}-????????.jsonl")
        return [int(path.stem.rpartition("-")[2]) for path in paths]


def _write(file: int, text: bytes) -> None:
    while text:
        text = text[os.write(file, text) :]


def _cut_torn_line(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb+") as file:
        file.seek(max(0, size - LINE_BYTES_MAX))
        end = file.read()
        torn = len(end) - (end.rfind(b"\n") + 1)
        if torn:
            file.truncate(size - torn)


def _entries(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield _ENTRY.validate_json(line)
            except ValidationError as error:
                raise JournalDamagedError(f"{path}, line {number}: {error}") from error
