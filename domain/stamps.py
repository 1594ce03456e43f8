"""When an attempt started and ended, as people are shown it: its machine's clock made to fit ours.

For display only: nothing is decided by an instant of another machine's clock.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Span:
    """From the child's exec, where there was one, to its end; never a negative time."""

    started_at: datetime | None
    ended_at: datetime


def shown_span(
    started_at: datetime | None,
    ended_at: datetime,
    *,
    heard_at: datetime,
    placed_at: datetime | None = None,
) -> Span:
    """The keeper's stamps, moved together just so far that they lie where they must.

    An attempt has not run before it was placed, nor ended after it was heard of, so stamps outside
    of that are of a clock that is off. Moved together, they keep the time between them.
    """
    first = ended_at if started_at is None else min(started_at, ended_at)
    moved = timedelta()
    if ended_at > heard_at:
        moved = heard_at - ended_at
    elif placed_at is not None and first < placed_at:
        moved = placed_at - first
    ended = min(ended_at + moved, heard_at)
    if placed_at is not None:
        ended = max(ended, placed_at)
    if started_at is None:
        return Span(None, ended)
    started = min(started_at + moved, ended)
    return Span(started if placed_at is None else max(started, placed_at), ended)
