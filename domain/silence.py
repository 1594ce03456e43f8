"""When silence becomes suspicion, and suspicion certainty; what is paged then.

Counted in slices of the lease. Knows neither deliveries nor grants.
"""

from datetime import datetime, timedelta

from domain.protocol import ConfirmLost
from domain.standing import WATCHED, ClusterState, Effects
from domain.supervision import (
    ArmSlice,
    ArmSuspicion,
    BrakeSeen,
    Fence,
    FenceAnswer,
    LookAtBrake,
    LossPaged,
    MarkSuspect,
    NoteConfirmed,
    PageLoss,
    Reach,
    SliceEnded,
    SuspicionDue,
)


def watch(state: ClusterState, at: datetime) -> tuple[ClusterState, Effects]:
    """Arm the slice that was running, or a new one; a run that continues keeps its deadline."""
    if state.reach not in WATCHED:
        return state.model_copy(update={"slice_began": None}), ()
    if state.slice_began is not None and state.slice_began <= at:
        left = max(state.terms.slice - (at - state.slice_began), timedelta(0))
        return state, (ArmSlice(began=state.slice_began, wait=left),)
    return _new_slice(state, at)


def _new_slice(state: ClusterState, at: datetime) -> tuple[ClusterState, Effects]:
    state = state.model_copy(update={"slice_began": at, "heard_in_slice": False})
    return state, (ArmSlice(began=at, wait=state.terms.slice),)


def slice_ended(
    state: ClusterState, ended: SliceEnded, at: datetime
) -> tuple[ClusterState, Effects]:
    if ended.began != state.slice_began or state.reach not in WATCHED:
        return state, ()
    late = at - ended.began - state.terms.slice > timedelta(seconds=state.terms.late_s)
    silent = not state.heard_in_slice
    if silent and not late:
        counted = min(state.silent_slices + 1, state.terms.slices_needed)
        state = state.model_copy(update={"silent_slices": counted})
    state, ticking = _new_slice(state, at)
    if not silent or late:
        return state, ticking
    if state.reach is Reach.SUSPECT:
        return state, (*ticking, LookAtBrake(cluster=state.cluster))
    return _suspected(state, at, ticking)


def _suspected(state: ClusterState, at: datetime, ticking: Effects) -> tuple[ClusterState, Effects]:
    assert state.heard_at is not None, state
    left = state.heard_at + timedelta(seconds=state.terms.suspect_s) - at
    if left > timedelta(0):
        return state, (*ticking, ArmSuspicion(heard_at=state.heard_at, wait=left))
    state, effects = _suspect(state)
    return state, (*ticking, *effects)


def suspicion_due(
    state: ClusterState, due: SuspicionDue, at: datetime
) -> tuple[ClusterState, Effects]:
    """An overdue timer proves nothing; the next slice looks again."""
    late = at - due.due > timedelta(seconds=state.terms.late_s)
    if late or due.heard_at != state.heard_at or state.reach is not Reach.REACHABLE:
        return state, ()
    return _suspect(state)


def _suspect(state: ClusterState) -> tuple[ClusterState, Effects]:
    state = state.model_copy(update={"reach": Reach.SUSPECT})
    state, paging = page(state)  # Only for those that asked to be replaced at once.
    return state, (MarkSuspect(cluster=state.cluster, epoch=state.epoch), *paging)


def brake_seen(state: ClusterState, seen: BrakeSeen) -> tuple[ClusterState, Effects]:
    """While the brake holds nothing is counted: the wait starts anew when it lifts."""
    if seen.braked:
        return state.model_copy(update={"silent_slices": 0}), ()
    enough = state.silent_slices >= state.terms.slices_needed
    if state.reach is not Reach.SUSPECT or not enough:
        return state, ()
    return state, (Fence(cluster=state.cluster, epoch=state.epoch),)


def fence_answered(state: ClusterState, answer: FenceAnswer) -> tuple[ClusterState, Effects]:
    if not answer.fenced:
        return state.model_copy(update={"silent_slices": 0}), ()
    return _lost(state, Reach.FENCED)


def confirmed_lost(state: ClusterState, confirmed: ConfirmLost) -> tuple[ClusterState, Effects]:
    note = NoteConfirmed(cluster=state.cluster, confirmed=confirmed)
    lost = page(state) if confirmed.machine is not None else _lost(state, Reach.CONFIRMED)
    return lost[0], (note, *lost[1])


def _lost(state: ClusterState, reach: Reach) -> tuple[ClusterState, Effects]:
    lost = {"reach": reach, "granted": False, "slice_began": None, "silent_slices": 0}
    return page(state.model_copy(update=lost))


def page(state: ClusterState) -> tuple[ClusterState, Effects]:
    """One activity reads the row and does what its state says; asked meanwhile, it goes again."""
    if state.paging:
        return state.model_copy(update={"page_again": True}), ()
    paging = {"paging": True, "page_again": False}
    return state.model_copy(update=paging), (PageLoss(cluster=state.cluster),)


def loss_paged(state: ClusterState, paged: LossPaged, at: datetime) -> tuple[ClusterState, Effects]:
    state = state.model_copy(update={"paging": False})
    if state.reach is Reach.FENCED and paged.reach is Reach.SUSPECT:
        # Fenced under a brake that has lifted since: its wait starts anew.
        state = state.model_copy(update={"reach": Reach.SUSPECT, "silent_slices": 0})
        return watch(state, at)
    more = state.page_again or paged.reach is None
    return page(state) if more else (state, ())
