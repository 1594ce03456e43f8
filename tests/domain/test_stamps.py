"""Stamps of machines whose clocks are right, ahead, behind, or were set while the attempt ran."""

from datetime import UTC, datetime, timedelta

import pytest

from domain.stamps import shown_span

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


@pytest.mark.parametrize(
    ("started", "ended", "shown"),
    [
        (1, 5, (1, 5)),  # As stamped, however much later it is heard of.
        (0, 60, (0, 60)),
        (3_601, 3_605, (56, 60)),  # An hour ahead: it ended when it was heard of, after 4 s.
        (-3_599, -3_595, (0, 4)),  # An hour behind: it began when it was placed, and took 4 s.
        (-2, 58, (0, 60)),
        (5, 1, (1, 1)),  # Set back while it ran.
        (-20, 3_605, (0, 60)),  # Set forward while it ran: it cannot have taken longer.
        (None, 5, (None, 5)),  # Never started.
        (None, 90, (None, 60)),
        (None, -90, (None, 0)),
    ],
)
def test_stamps_lie_between_placing_and_hearing_and_keep_their_distance(
    started: float | None, ended: float, shown: tuple[float | None, float]
) -> None:
    start = None if started is None else at(started)
    span = shown_span(start, at(ended), placed_at=at(0), heard_at=at(60))
    first, last = shown
    assert span.ended_at == at(last)
    assert span.started_at == (None if first is None else at(first))


def test_where_the_placing_is_not_known_only_the_hearing_bounds_them() -> None:
    span = shown_span(at(-90), at(-10), heard_at=at(60))
    assert (span.started_at, span.ended_at) == (at(-90), at(-10))
    late = shown_span(at(90), at(100), heard_at=at(60))
    assert (late.started_at, late.ended_at) == (at(50), at(60))
