"""The output of a task, copied as it comes: over attempts, over an API that goes away and comes
back, and never past missing bytes without a word."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from domain.errors import DrystoneError, UnavailableError
from domain.faces import OutputPiece
from drystone.cli.output import ended
from drystone.client import Client

FOLLOW_RETRIES = 10
"""Of a client that follows: an API that restarts is waited for longer than one that is asked."""
AGAIN_S = 0.5
TRIES_MAX = 20
"""In a row without a byte, while the API answers everything but this."""
OVER_TRIES_MAX = 3
"""The same once the attempt is over: what it said may be gone with its machine."""


class Copying(threading.Thread):
    """One stream being copied. A daemon: Ctrl-C does not wait for it."""

    def __init__(self, copy: Callable[[], None], left: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._copy, self._left = copy, left
        self.error: DrystoneError | BrokenPipeError | None = None

    def run(self) -> None:
        """Keeps what it fails of."""
        try:
            self._copy()
        except DrystoneError as error:
            self.error = error
        except BrokenPipeError as error:
            self.error = error
            self._left()


@dataclass
class Follower:
    """The streams of one task. `tell` hears of new attempts, `warn` of what is missing, and `left`
    is called when nobody reads any more."""

    client: Client
    team: str
    task_id: str
    tell: Callable[[str], None]
    warn: Callable[[str], None]
    left: Callable[[], None] = lambda: None
    _told: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, stream: str, out: BinaryIO, attempt: int | None = None) -> Copying:
        """Begin to copy a stream of this attempt, or of all."""
        if attempt is None:
            made = Copying(lambda: self.copy(stream, out), self.left)
        else:
            made = Copying(lambda: self.copy_attempt(stream, attempt, out), self.left)
        made.start()
        return made

    def copy(self, stream: str, out: BinaryIO) -> None:
        """One stream of every attempt, from where it broke off when the API went away.

        A DrystoneError when it must be given up; BrokenPipeError when nobody reads any more.
        """
        number = 1
        while True:
            self.copy_attempt(stream, number, out)
            task = self.client.get(self.task_id, team=self.team)
            if task.phase.final and task.number <= number:
                return
            number += 1

    def copy_attempt(self, stream: str, number: int, out: BinaryIO) -> None:
        """One stream of one attempt, to its end."""
        offset, tries = 0, 0
        while True:
            try:
                for piece in self.client.output(
                    self.task_id,
                    team=self.team,
                    stream=stream,
                    attempt=number,
                    follow=True,
                    offset=offset,
                ):
                    self.write(piece, out)
                    if piece.stream is not None:
                        offset, tries = piece.first + len(piece.content), 0
                return
            except UnavailableError as error:
                tries += 1
                task = self.client.get(self.task_id, team=self.team)
                over = task.phase.final or task.number > number
                if tries > (OVER_TRIES_MAX if over else TRIES_MAX):
                    self.warn(f"some of {stream} of attempt {number} may be missing: {error}")
                    return
                time.sleep(AGAIN_S)

    def write(self, piece: OutputPiece, out: BinaryIO) -> None:
        """A piece, after what there is to say of it."""
        if piece.stream is None:
            self._announce(piece)
            return
        if piece.gap:
            self.warn(piece.gap)
        out.write(piece.content)
        out.flush()

    def _announce(self, piece: OutputPiece) -> None:
        with self._lock:
            if piece.attempt in self._told:
                return
            self._told.add(piece.attempt)
        before = self._before(piece.attempt - 1)
        self.tell(f"attempt {piece.attempt} on {piece.place}{before}")

    def _before(self, number: int) -> str:
        if number < 1:
            return ""
        try:
            attempts = self.client.attempts(self.task_id, team=self.team).items
        except DrystoneError:
            return ""
        ending = next((a.ending for a in attempts if a.number == number), None)
        return f" (attempt {number}: {ended(ending)})" if ending is not None else ""
