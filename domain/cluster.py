"""Cluster supervision: when silence becomes loss, who is granted a lease, what is delivered when.

`step(state, event, at)` answers with the next state and the effects to carry out. Knows leases,
epochs and deliveries; knows nothing of tasks, SQL, timers or Temporal. The ledger's rows are the
truth: a message here only says when to read them again.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from domain.protocol import (
    ConfirmLost,
    CordonMachines,
    DeliveryHint,
    Heartbeat,
    Orphan,
    Register,
)
from domain.supervision import (
    ArmSlice,
    ArmSuspicion,
    BeginGrant,
    BrakeSeen,
    ClusterEffect,
    ClusterEvent,
    Delivered,
    DeliveryFailed,
    Fence,
    FenceAnswer,
    GrantBegun,
    Granted,
    GrantFailed,
    LeaseTerms,
    LoadOrders,
    LookAtBrake,
    LossPaged,
    MarkSuspect,
    NoteAnswers,
    NoteConfirmed,
    NoteCordon,
    Noted,
    NoteGranted,
    NoteHeartbeat,
    NoteOrphan,
    NoteRegistration,
    Open,
    Opened,
    OrdersLoaded,
    PageLoss,
    Reach,
    SendDelivery,
    SendGrant,
    SliceEnded,
    SuspicionDue,
)

Effects = tuple[ClusterEffect, ...]
WATCHED = frozenset({Reach.REACHABLE, Reach.SUSPECT})
"""Only here may something run under a lease, so only here is silence counted."""
LOST = frozenset({Reach.FENCED, Reach.CONFIRMED})


class ClusterState(BaseModel, frozen=True):
    """Everything a ClusterWorkflow carries through continue-as-new, deadlines included."""

    cluster: str
    terms: LeaseTerms = LeaseTerms()
    reach: Reach = Reach.ABSENT
    epoch: int = 0
    instance: str = ""
    granted: bool = False
    """The agent of `instance` has taken the grant of `epoch`."""
    granting: bool = False
    grant_again: bool = False
    delivering: bool = False
    delivery_full: bool = False
    deliver_again: bool = False
    deliveries_succeed: bool = False
    """The last one was answered: only then is an unanswered offer the agent's fault."""
    heard_at: datetime | None = None
    heard_in_slice: bool = False
    silent_slices: int = 0
    """Wholly silent ones that ended on time, since the last contact or the brake."""
    slice_began: datetime | None = None
    paging: bool = False
    page_again: bool = False
    heartbeats: int = 0
    strangers: int = 0
    """Heartbeats of an agent process that another has followed."""
    misfits: int = 0


def begin(state: ClusterState) -> tuple[ClusterState, Effects]:
    """The first step of every run: what went on beside the last run's loop is forgotten."""
    forgotten: Mapping[str, Any] = {
        "granting": False,
        "grant_again": state.granting or state.grant_again,
        "delivering": False,
        "paging": False,
    }
    return state.model_copy(update=forgotten), (Open(cluster=state.cluster),)


def step(state: ClusterState, event: ClusterEvent, at: datetime) -> tuple[ClusterState, Effects]:
    """The next state, and what to do."""
    match event:
        case Opened():
            return _opened(state, event, at)
        case Register():
            return _registered(state, event, at)
        case Heartbeat():
            return _heartbeat(state, event, at)
        case GrantBegun():
            return _grant_begun(state, event, at)
        case Granted():
            return _granted(state, event, at)
        case GrantFailed():
            return _grant_failed(state)
        case DeliveryHint():
            return _want_delivery(state)
        case OrdersLoaded():
            return _orders_loaded(state, event)
        case Delivered():
            return _delivered(state, event)
        case DeliveryFailed():
            failed = {"delivering": False, "deliver_again": False, "deliveries_succeed": False}
            return state.model_copy(update=failed), ()
        case Noted():
            return _want_delivery(state) if event.undelivered else (state, ())
        case SliceEnded():
            return _slice_ended(state, event, at)
        case SuspicionDue():
            return _suspicion_due(state, event, at)
        case BrakeSeen():
            return _brake_seen(state, event)
        case FenceAnswer():
            return _fence_answered(state, event)
        case Orphan():
            return state, (NoteOrphan(cluster=state.cluster, orphan=event),)
        case CordonMachines():
            return state, (NoteCordon(cluster=state.cluster, cordon=event),)
        case ConfirmLost():
            return _confirmed(state, event)
        case LossPaged():
            return _loss_paged(state, event, at)
    raise AssertionError(event)


def check(state: ClusterState) -> None:
    """What must hold after every step."""
    assert state.epoch >= 0
    assert not (state.granted and state.epoch == 0), state
    assert not (state.granted and state.reach in LOST), state
    assert 0 <= state.silent_slices <= state.terms.slices_needed, state
    assert (state.slice_began is not None) or state.reach not in WATCHED, state


# --- contact ------------------------------------------------------------------------------------


def _opened(state: ClusterState, row: Opened, at: datetime) -> tuple[ClusterState, Effects]:
    """The row is the truth about epoch and reach; a fresh run believes its agent granted."""
    same = row.epoch == state.epoch and row.instance in ("", state.instance)
    fresh = state.epoch == 0
    state = state.model_copy(
        update={
            "terms": row.terms,
            "reach": row.reach,
            "epoch": row.epoch,
            "instance": row.instance or state.instance,
            "granted": row.reach in WATCHED
            and row.epoch > 0
            and (fresh or (same and state.granted)),
            "heard_at": state.heard_at or at,
            "silent_slices": min(state.silent_slices, row.terms.slices_needed),
        }
    )
    state, ticking = _watch(state, at)
    state, paging = _page(state) if state.reach in LOST else (state, ())
    state, granting = _want_grant(state) if state.grant_again else (state, ())
    state, delivering = _want_delivery(state)
    return state, (*ticking, *paging, *granting, *delivering)


def _registered(
    state: ClusterState, register: Register, at: datetime
) -> tuple[ClusterState, Effects]:
    """A new process, or one whose lease has passed: only a grant begins a lease."""
    note = NoteRegistration(cluster=state.cluster, register_=register)
    if register.instance == state.instance and state.granting:
        return _heard(state, at), (note,)
    state = _heard(state, at).model_copy(update={"instance": register.instance, "granted": False})
    state, granting = _want_grant(state)
    return state, (note, *granting)


def _heartbeat(
    state: ClusterState, heartbeat: Heartbeat, at: datetime
) -> tuple[ClusterState, Effects]:
    state = state.model_copy(update={"heartbeats": state.heartbeats + 1})
    if state.instance == "":
        register = Register(
            instance=heartbeat.instance,
            http_address=heartbeat.http_address,
            site=heartbeat.site,
        )
        state, effects = _registered(state, register, at)
        return state, (*effects, _note_heartbeat(state, heartbeat))
    if heartbeat.instance != state.instance:
        return state.model_copy(update={"strangers": state.strangers + 1}), ()
    state = _heard(state, at)
    if heartbeat.epoch != state.epoch or not state.granted:
        state = state.model_copy(update={"granted": False})
        state, granting = (state, ()) if state.granting else _want_grant(state)
        return state, (_note_heartbeat(state, heartbeat), *granting)
    state = state.model_copy(update={"reach": Reach.REACHABLE})
    return state, (_note_heartbeat(state, heartbeat),)


def _note_heartbeat(state: ClusterState, heartbeat: Heartbeat) -> NoteHeartbeat:
    return NoteHeartbeat(cluster=state.cluster, heartbeat=heartbeat, reachable=state.granted)


def _heard(state: ClusterState, at: datetime) -> ClusterState:
    return state.model_copy(update={"heard_at": at, "heard_in_slice": True, "silent_slices": 0})


# --- grants -------------------------------------------------------------------------------------


def _want_grant(state: ClusterState) -> tuple[ClusterState, Effects]:
    """One at a time; the epoch rises with each."""
    if state.granting:
        return state.model_copy(update={"grant_again": True}), ()
    asked = {"granting": True, "grant_again": False, "granted": False}
    return state.model_copy(update=asked), (BeginGrant(cluster=state.cluster),)


def _grant_begun(
    state: ClusterState, begun: GrantBegun, at: datetime
) -> tuple[ClusterState, Effects]:
    """From here on a lease may run, whether or not we learn of it: silence counts from now."""
    watched = {"epoch": begun.grant.epoch, "reach": Reach.SUSPECT}
    state, ticking = _watch(_heard(state.model_copy(update=watched), at), at)
    return state, (SendGrant(grant=begun.grant), *ticking)


def _granted(state: ClusterState, event: Granted, at: datetime) -> tuple[ClusterState, Effects]:
    answer = event.answer
    state = state.model_copy(update={"granting": False})
    if state.grant_again or answer.epoch != state.epoch:
        return _want_grant(state) if state.grant_again else (state, ())
    if state.instance not in ("", answer.instance):
        return state, ()  # Its own registration is on the way, or it is an older process.
    state = _heard(state, at).model_copy(
        update={"granted": True, "reach": Reach.REACHABLE, "instance": answer.instance}
    )
    state, delivering = _want_delivery(state)
    return state, (NoteGranted(cluster=state.cluster, answer=answer), *delivering)


def _grant_failed(state: ClusterState) -> tuple[ClusterState, Effects]:
    """The agent asks again with its next heartbeat, as long as it lives."""
    state = state.model_copy(update={"granting": False})
    return _want_grant(state) if state.grant_again else (state, ())


# --- delivery -----------------------------------------------------------------------------------


def _want_delivery(state: ClusterState) -> tuple[ClusterState, Effects]:
    """One in flight; what comes meanwhile is looked for after it."""
    if not state.granted:
        return state, ()  # The grant's answer looks again.
    if state.delivering:
        return state.model_copy(update={"deliver_again": True}), ()
    state = state.model_copy(update={"delivering": True, "deliver_again": False})
    load = LoadOrders(cluster=state.cluster, deliveries_succeed=state.deliveries_succeed)
    return state, (load,)


def _orders_loaded(state: ClusterState, loaded: OrdersLoaded) -> tuple[ClusterState, Effects]:
    if loaded.delivery is None or not state.granted:
        state = state.model_copy(update={"delivering": False, "delivery_full": False})
        return _want_delivery(state) if state.deliver_again else (state, ())
    state = state.model_copy(update={"delivery_full": loaded.full})
    return state, (SendDelivery(delivery=loaded.delivery),)


def _delivered(state: ClusterState, event: Delivered) -> tuple[ClusterState, Effects]:
    """Look again only for news or for what did not fit: an order without answer can wait."""
    more = state.deliver_again or (state.delivery_full and len(event.answer.answers) > 0)
    state = state.model_copy(update={"delivering": False, "deliveries_succeed": True})
    note = NoteAnswers(cluster=state.cluster, answer=event.answer)
    state, again = _want_delivery(state) if more else (state, ())
    return state, (note, *again)


# --- silence ------------------------------------------------------------------------------------


def _watch(state: ClusterState, at: datetime) -> tuple[ClusterState, Effects]:
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


def _slice_ended(
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


def _suspicion_due(
    state: ClusterState, due: SuspicionDue, at: datetime
) -> tuple[ClusterState, Effects]:
    """An overdue timer proves nothing; the next slice looks again."""
    late = at - due.due > timedelta(seconds=state.terms.late_s)
    if late or due.heard_at != state.heard_at or state.reach is not Reach.REACHABLE:
        return state, ()
    return _suspect(state)


def _suspect(state: ClusterState) -> tuple[ClusterState, Effects]:
    state = state.model_copy(update={"reach": Reach.SUSPECT})
    state, paging = _page(state)  # Only for those that asked to be replaced at once.
    return state, (MarkSuspect(cluster=state.cluster, epoch=state.epoch), *paging)


def _brake_seen(state: ClusterState, seen: BrakeSeen) -> tuple[ClusterState, Effects]:
    """While the brake holds nothing is counted: the wait starts anew when it lifts."""
    if seen.braked:
        return state.model_copy(update={"silent_slices": 0}), ()
    enough = state.silent_slices >= state.terms.slices_needed
    if state.reach is not Reach.SUSPECT or not enough:
        return state, ()
    return state, (Fence(cluster=state.cluster, epoch=state.epoch),)


def _fence_answered(state: ClusterState, answer: FenceAnswer) -> tuple[ClusterState, Effects]:
    if not answer.fenced:
        return state.model_copy(update={"silent_slices": 0}), ()
    return _lost(state, Reach.FENCED)


def _confirmed(state: ClusterState, confirmed: ConfirmLost) -> tuple[ClusterState, Effects]:
    note = NoteConfirmed(cluster=state.cluster, confirmed=confirmed)
    lost = _page(state) if confirmed.machine is not None else _lost(state, Reach.CONFIRMED)
    return lost[0], (note, *lost[1])


def _lost(state: ClusterState, reach: Reach) -> tuple[ClusterState, Effects]:
    lost = {"reach": reach, "granted": False, "slice_began": None, "silent_slices": 0}
    return _page(state.model_copy(update=lost))


def _page(state: ClusterState) -> tuple[ClusterState, Effects]:
    """One activity reads the row and does what its state says; asked meanwhile, it goes again."""
    if state.paging:
        return state.model_copy(update={"page_again": True}), ()
    paging = {"paging": True, "page_again": False}
    return state.model_copy(update=paging), (PageLoss(cluster=state.cluster),)


def _loss_paged(
    state: ClusterState, paged: LossPaged, at: datetime
) -> tuple[ClusterState, Effects]:
    state = state.model_copy(update={"paging": False})
    if state.reach is Reach.FENCED and paged.reach is Reach.SUSPECT:
        # Fenced under a brake that has lifted since: its wait starts anew.
        state = state.model_copy(update={"reach": Reach.SUSPECT, "silent_slices": 0})
        return _watch(state, at)
    more = state.page_again or paged.reach is None
    return _page(state) if more else (state, ())
