"""An attempt's output on disk: per stream at most two segments, read by absolute offset.

A segment's name carries the offset of its first byte among everything ever written, so a reader
needs no state of the writer, and a writer that is gone leaves everything readable.
"""

import os
from dataclasses import dataclass
from pathlib import Path

SEGMENTS = 2
_DIGITS = 20


class Output:
    """The writer of one stream: appends, and drops the older segment when both are full."""

    def __init__(self, folder: Path, stream: str, bytes_max: int) -> None:
        self._folder = folder
        self._stream = stream
        self._segment_bytes = max(1, bytes_max // SEGMENTS)
        self._file: int | None = None
        self._start = 0
        self._written = 0

    def write(self, data: bytes) -> None:
        """Append; nothing is created before the first byte."""
        view = memoryview(data)
        while view:
            full = self._written - self._start >= self._segment_bytes
            if self._file is None or full:
                self._next_segment()
            assert self._file is not None
            room = self._segment_bytes - (self._written - self._start)
            done = os.write(self._file, view[:room])
            self._written += done
            view = view[done:]

    def close(self) -> None:
        """No more will come."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _next_segment(self) -> None:
        self.close()
        for old in _segments(self._folder, self._stream)[: 1 - SEGMENTS]:
            (self._folder / old).unlink(missing_ok=True)
        self._start = self._written
        path = self._folder / f"{self._stream}-{self._start:0{_DIGITS}}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stream: where it begins, its bytes, and how much was ever written."""

    first: int
    data: bytes
    total: int


def read_output(folder: Path, stream: str, offset: int, limit: int) -> Chunk:
    """At most `limit` bytes from `offset` on, or from the oldest byte there is if that is later."""
    names = _segments(folder, stream)
    starts = [int(name[-_DIGITS:]) for name in names]
    sizes = [_size(folder / name) for name in names]
    total = starts[-1] + sizes[-1] if names else 0
    first = max([offset, *starts[:1]])
    data = b""
    for name, start, size in zip(names, starts, sizes, strict=True):
        at = first + len(data)
        if len(data) < limit and start <= at < start + size:
            with open(folder / name, "rb") as segment:
                segment.seek(at - start)
                data += segment.read(min(limit - len(data), size - (at - start)))
    return Chunk(first=first, data=data, total=total)


def _segments(folder: Path, stream: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    length = len(stream) + 1 + _DIGITS
    return sorted(n for n in names if n.startswith(f"{stream}-") and len(n) == length)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
