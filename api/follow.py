"""Follows output over attempts: which attempt is next, when it is complete, when to ask again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from api.logs import Stream
from api.parts import Parts
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


@dataclass(frozen=True)
class Wanted:
    """What a reader asked for. `attempt` None: the latest, and with `follow` those after it."""

    key: TaskKey
    streams: Sequence[Stream]
    attempt: int | None
    follow: bool
    offset: int = 0


async def output(parts: Parts, wanted: Wanted, view: TaskView) -> AsyncIterator[bytes]:
    """The output in chunks. Refusals come before the first chunk."""
    number = wanted.attempt or max(view.number, 1)
    offset = wanted.offset
    while True:
        attempt = await _attempt(parts, wanted, number)
        if attempt is None:
            return
        try:
            async for data in _of_attempt(parts, wanted, attempt, offset):
                yield data
        except UnavailableError:
            # What an attempt on a lost machine has said may be lost too; its successor goes on.
            task = await parts.ledger.read(tasks.task, wanted.key)
            if wanted.attempt is not None or task is None or task.number <= number:
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
        await asyncio.sleep(quiet_s)
        quiet_s = min(2 * quiet_s, QUIET_S_MAX)


async def _of_attempt(
    parts: Parts, wanted: Wanted, attempt: AttemptView, offset: int
) -> AsyncIterator[bytes]:
    offsets = dict.fromkeys(wanted.streams, offset)
    quiet_s, silent_s = QUIET_S_FIRST, 0.0
    name = attempt_id(wanted.key, attempt.number)
    while True:
        # Asked before the output: what is said to have ended writes no more after that.
        over = not wanted.follow or await _has_ended(parts, wanted.key, attempt.number)
        came = False
        try:
            address = await _address(parts, attempt.cluster)
            for stream in list(offsets):
                chunk = await parts.logs.chunk(address, name, stream, offsets[stream])
                if chunk.data:
                    came = True
                    offsets[stream] = chunk.next
                    yield chunk.data
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
        if not came:
            await asyncio.sleep(quiet_s)


async def _has_ended(parts: Parts, key: TaskKey, number: int) -> bool:
    attempts = await parts.ledger.read(tasks.attempts, key)
    return all(a.ended_at is not None or a.closed for a in attempts if a.number == number)


async def _address(parts: Parts, name: str) -> str:
    cluster: ClusterView | None = await parts.ledger.read(overview.cluster, name)
    if cluster is None or not cluster.http_address:
        raise UnavailableError(f"the agent of cluster {name} has no address: no output can be read")
    if cluster.state in _SILENT:
        raise UnavailableError(f"cluster {name} is silent: its output cannot be read now")
    return cluster.http_address
