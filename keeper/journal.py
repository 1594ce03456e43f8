"""What must outlive a keeper: numbers it started, endings not yet forgotten, tombstones.

JSON lines, appended before what they tell of is done or said. Not synced to the disk: a machine
that falls takes the attempts with it, and then the agent reports them lost anyway.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from domain.protocol import AttemptEnded
from keeper.attempts import TOMBSTONES_MAX, died_with_keeper
from keeper.roots import BURIED, ENDED, FORGOTTEN, INTENDED, OPENED, STARTED, boot_id, lines

LINES_BEFORE_COMPACTION = 10_000


@dataclass(frozen=True, slots=True)
class Remembered:
    """What an earlier keeper left in the journal."""

    endings: tuple[AttemptEnded, ...]
    tombstones: tuple[AttemptEnded, ...]
    """Numbers that are over: forgotten by the agent, or dead with their keeper."""


class Journal:
    """The open journal of one keeper. `begin` first; it also drops what is of no use any more."""

    def __init__(self, path: Path, instance: str) -> None:
        self._path = path
        self._instance = instance
        self._file = -1
        self._lines = 0
        self._started: dict[str, list[bytes]] = {}
        self._ended: dict[str, AttemptEnded] = {}
        self._buried: dict[str, AttemptEnded] = {}

    def begin(self, at: datetime) -> Remembered:
        """Read what is there; to be called when nothing that it names runs any more."""
        for line in lines(self._path):
            self._recall(line)
        for attempt in self._started:
            self._bury(died_with_keeper(attempt, at))
        self._started = {}
        self._compact()
        return Remembered(tuple(self._ended.values()), tuple(self._buried.values()))

    def intend(self, attempt: str) -> None:
        """This number is about to be started, and must not be started a second time."""
        self._started[attempt] = [self._append(k=INTENDED, attempt=attempt)]

    def started(self, attempt: str, pid: int, born: int, *, waits: bool) -> None:
        """Its main child, for whoever has to kill it when this keeper cannot."""
        line = self._append(
            k=STARTED, attempt=attempt, pid=pid, born=born, waits=waits, instance=self._instance
        )
        self._started[attempt].append(line)

    def ended(self, ended: AttemptEnded) -> None:
        """Nothing of it runs any more."""
        self._append(k=ENDED, ended=ended.model_dump(mode="json"))
        self._started.pop(ended.attempt, None)
        self._ended[ended.attempt] = ended
        self._compact_if_long()

    def forgotten(self, attempts: Iterable[str]) -> None:
        """The agent has these endings safely."""
        over = [attempt for attempt in attempts if attempt in self._ended]
        self._append(k=FORGOTTEN, attempts=over)
        for attempt in over:
            self._bury(self._ended.pop(attempt))

    def close(self) -> None:
        """No more lines."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _recall(self, line: dict[str, Any]) -> None:
        match line.get("k"):
            case "intended" | "started":
                self._started[line["attempt"]] = []
            case "ended" | "buried" as kind:
                try:
                    ended = AttemptEnded.model_validate(line["ended"])
                except ValidationError:
                    return
                self._started.pop(ended.attempt, None)
                if kind == ENDED:
                    self._ended[ended.attempt] = ended
                else:
                    self._bury(ended)
            case "forgotten":
                for attempt in line["attempts"]:
                    if attempt in self._ended:
                        self._bury(self._ended.pop(attempt))
            case _:
                pass

    def _bury(self, ended: AttemptEnded) -> None:
        self._buried[ended.attempt] = ended
        while len(self._buried) > TOMBSTONES_MAX:
            del self._buried[next(iter(self._buried))]

    def _append(self, **fields: Any) -> bytes:
        line = _line(fields)
        os.write(self._file, line)
        self._lines += 1
        return line

    def _compact_if_long(self) -> None:
        kept = len(self._buried) + len(self._ended) + 2 * len(self._started)
        if self._lines > LINES_BEFORE_COMPACTION + 2 * kept:
            self._compact()

    def _compact(self) -> None:
        """Write what still counts beside the journal, then put it in its place at once."""
        fresh = self._path.with_suffix(".new")
        written = [_line({"k": OPENED, "instance": self._instance, "boot": boot_id()})]
        written += [_ended_line(BURIED, ended) for ended in self._buried.values()]
        written += [_ended_line(ENDED, ended) for ended in self._ended.values()]
        written += [line for lines_of in self._started.values() for line in lines_of]
        fresh.write_bytes(b"".join(written))
        self.close()
        fresh.replace(self._path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._lines = len(written)


def _ended_line(kind: str, ended: AttemptEnded) -> bytes:
    return _line({"k": kind, "ended": ended.model_dump(mode="json")})


def _line(fields: dict[str, Any]) -> bytes:
    # A leading newline ends whatever an earlier crash, or a full disk, tore off.
    return b"\n" + json.dumps(fields, separators=(",", ":")).encode()
