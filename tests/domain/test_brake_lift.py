"""An operator lifts a brake: what the cluster's supervision does with that word."""

from datetime import UTC, datetime

from domain.cluster import ClusterState, check, step
from domain.protocol import LiftBrake, LiftMachines
from domain.supervision import (
    BrakeSeen,
    Fence,
    LookAtBrake,
    NoteLift,
    Reach,
    SendLift,
    SliceEnded,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def silent() -> ClusterState:
    """Suspect, and its wait held up by the brake."""
    return ClusterState(cluster="c1", reach=Reach.SUSPECT, epoch=1, heard_at=AT, slice_began=AT)


def test_the_brake_on_clusters_is_lifted_in_the_ledger() -> None:
    lift = LiftBrake(brake="clusters", by="ann", at=AT)
    state, effects = step(silent(), lift, AT)
    assert (state, effects) == (silent(), (NoteLift(cluster="c1", lift=lift),))


def test_the_brake_on_machines_is_written_down_and_lifted_by_their_agent() -> None:
    lift = LiftBrake(brake="machines", by="ann", at=AT)
    _, effects = step(silent(), lift, AT)
    told = SendLift(lift=LiftMachines(cluster="c1", by="ann"))
    assert effects == (NoteLift(cluster="c1", lift=lift), told)


def test_after_the_lift_the_whole_wait_begins_anew() -> None:
    state, at = silent(), AT
    fenced_after = []
    for number in range(1, 30):
        assert state.slice_began is not None
        at = state.slice_began + state.terms.slice
        state, effects = step(state, SliceEnded(began=state.slice_began), at)
        assert LookAtBrake(cluster="c1") in effects
        state, effects = step(state, BrakeSeen(braked=number <= 10), at)
        check(state)
        if any(isinstance(effect, Fence) for effect in effects):
            fenced_after.append(number)
    assert fenced_after[0] == 10 + state.terms.slices_needed
