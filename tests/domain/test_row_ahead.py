"""A grant that was begun twice leaves the row an epoch ahead of what the agent was sent."""

from datetime import UTC, datetime

from domain.cluster import ClusterState, check, step
from domain.supervision import BeginGrant, Noted, Reach

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GRANTED = ClusterState(
    cluster="north",
    instance="a1",
    epoch=4,
    reach=Reach.REACHABLE,
    granted=True,
    heard_at=NOW,
    slice_began=NOW,
)


def test_a_row_ahead_is_caught_up_with_by_another_grant():
    state, effects = step(GRANTED, Noted(epoch=5), NOW)
    check(state)
    assert (state.granting, state.granted) == (True, False)
    assert effects == (BeginGrant(cluster="north"),)


def test_a_row_of_the_same_epoch_is_no_news():
    assert step(GRANTED, Noted(epoch=4), NOW) == (GRANTED, ())


def test_a_grant_on_its_way_is_waited_for():
    granting = GRANTED.model_copy(update={"granted": False, "granting": True})
    assert step(granting, Noted(epoch=5), NOW) == (granting, ())
