"""Follows output over attempts: which attempt is next, when it is complete, when to ask again."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from api.closing import STOPPING
from api.logs import Chunk, Stream
from api.parts import Parts
from domain.attempt import EndKind
from domain.errors import NotFoundError, UnavailableError
from domain.ids import TaskKey, attempt_id
from domain.supervision import Reach
from domain.views import AttemptView, ClusterView, TaskView
from store import overview, tasks

QUIET_S_FIRST = 0.1
QUIET_S_MAX = 1.0
"""Between two questions while nothing new comes: it grows from the first to the last."""
SILENCE_S_MAX = 120.0
"""So long an agent may be away in the middle of following; then the answer is cut off."""
OVER_SILENCE_S_MAX = 15.0
"""The same for the output of an attempt that has ended: an agent's restart is waited for."""
_SILENT = (Reach.SUSPECT, Reach.FENCED, Reach.CONFIRMED)
_RAN = (EndKind.EXITED, EndKind.STOPPED)


@dataclass(frozen=True)
class Wanted:
    """What a reader asked for. `attempt` None: the latest, and with `follow` those after it."""

    key: TaskKey
    streams: Sequence[Stream]
    attempt: int | None
    follow: bool
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Output of one stream of one attempt, or (no stream) the news that the attempt is read now."""

    attempt: int
    place: str
    """`<cluster>/<machine>`."""
    stream: Stream | None = None
    first: int = 0
    missing: int = 0
    """So many bytes before `first` are no longer kept, and were not read in time."""
    data: bytes = b""


async def output(parts: Parts, wanted: Wanted, view: TaskView) -> AsyncIterator[Piece]:
    """The output in pieces. Refusals come before the first piece."""
    number = wanted.attempt or max(view.number, 1)
    offset = wanted.offset
    while True:
        attempt = await _attempt(parts, wanted, number)
        if attempt is None:
            return
        try:
            async for piece in _of_attempt(parts, wanted, attempt, offset):
                yield piece
        except UnavailableError:
            # What an attempt on a lost machine has said may be lost too; its successor goes on.
            task = await parts.ledger.read(tasks.task, wanted.key)
            final = wanted.attempt is not None or task is None or task.number <= number
            if final or parts.closing.begun:
                raise
        if wanted.attempt is not None or not wanted.follow:
            return
        number, offset = number + 1, 0


async def _attempt(parts: Parts, wanted: Wanted, number: int) -> AttemptView | None:
    """The attempt of that number, waited for while the task may still make it."""
    quiet_s = QUIET_S_FIRST
    while True:
        # The task first: one that is final makes no attempt that the list below would miss.
        task = await parts.ledger.read(tasks.task, wanted.key)
        attempts = await parts.ledger.read(tasks.attempts, wanted.key)
        found = next((a for a in attempts if a.number == number), None)
        if found is not None or (wanted.follow and task is not None and task.phase.final):
            return found
        if not wanted.follow:
            raise NotFoundError(f"{wanted.key} has no attempt {number}")
        await _pause(parts, quiet_s)
        quiet_s = min(2 * quiet_s, QUIET_S_MAX)


async def _of_attempt(
    parts: Parts, wanted: Wanted, attempt: AttemptView, offset: int
) -> AsyncIterator[Piece]:
    offsets = dict.fromkeys(wanted.streams, offset)
    quiet_s, silent_s, told = QUIET_S_FIRST, 0.0, False
    while True:
        # Asked before the output: what is said to have ended writes no more after that.
        seen = await _seen(parts, wanted.key, attempt) if wanted.follow else attempt
        over = not wanted.follow or seen.ended_at is not None or seen.closed
        came = False
        try:
            for stream in list(offsets):
                chunk = await _chunk(parts, wanted.key, seen, stream, offsets[stream])
                if not told:
                    told = True
                    yield Piece(attempt.number, _place(attempt))
                if chunk.data:
                    came = True
                    yield _piece(attempt, stream, offsets[stream], chunk)
                    offsets[stream] = chunk.next
                elif chunk.ended or over:
                    del offsets[stream]
            silent_s = 0.0
        except UnavailableError:
            if not wanted.follow or silent_s >= (OVER_SILENCE_S_MAX if over else SILENCE_S_MAX):
                raise
            silent_s += quiet_s
        if not offsets:
            return
        quiet_s = QUIET_S_FIRST if came else min(1.5 * quiet_s, QUIET_S_MAX)
        await _pause(parts, 0.0 if came else quiet_s)


def _piece(attempt: AttemptView, stream: Stream, asked: int, chunk: Chunk) -> Piece:
    missing = chunk.first - asked
    return Piece(attempt.number, _place(attempt), stream, chunk.first, missing, chunk.data)


def _place(attempt: AttemptView) -> str:
    return f"{attempt.cluster}/{attempt.machine}"


async def _pause(parts: Parts, seconds: float) -> None:
    """So long; UnavailableError when this process is told to stop meanwhile."""
    if seconds > 0:
        await parts.closing.sleep(seconds)
    if parts.closing.begun:
        raise UnavailableError(STOPPING)


async def _chunk(
    parts: Parts, key: TaskKey, attempt: AttemptView, stream: Stream, offset: int
) -> Chunk:
    address = await _address(parts, attempt.cluster)
    name = attempt_id(key, attempt.number)
    chunk = await parts.logs.chunk(address, name, stream, offset)
    ending = attempt.ending
    if not chunk.known and ending is not None and ending.kind in _RAN and attempt.started_at:
        raise NotFoundError(f"the output of attempt {attempt.number} of {key} is no longer kept")
    return chunk


async def _seen(parts: Parts, key: TaskKey, attempt: AttemptView) -> AttemptView:
    """The attempt as it stands now."""
    attempts = await parts.ledger.read(tasks.attempts, key)
    return next((a for a in attempts if a.number == attempt.number), attempt)


async def _address(parts: Parts, name: str) -> str:
    cluster: ClusterView | None = await parts.ledger.read(overview.cluster, name)
    if cluster is None or not cluster.http_address:
        raise UnavailableError(f"the agent of cluster {name} has no address: no output can be read")
    if cluster.state in _SILENT:
        raise UnavailableError(f"cluster {name} is silent: its output cannot be read now")
    return cluster.http_address
