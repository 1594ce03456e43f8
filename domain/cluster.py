"""Cluster supervision: who is granted a lease, what is delivered when, what silence means.

`step(state, event, at)` answers with the next state and the effects to carry out. Knows leases,
epochs and deliveries; knows nothing of tasks, SQL, timers or Temporal. The ledger's rows are the
truth: a message here only says when to read them again.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from domain.protocol import (
    ConfirmLost,
    CordonMachines,
    DeliveryHint,
    DrainMachines,
    Heartbeat,
    LiftBrake,
    LiftMachines,
    Orphan,
    Register,
)
from domain.silence import (
    brake_seen,
    confirmed_lost,
    fence_answered,
    loss_paged,
    page,
    slice_ended,
    suspicion_due,
    watch,
)
from domain.standing import LOST, WATCHED, ClusterState, Effects
from domain.supervision import (
    BeginGrant,
    BrakeSeen,
    ClusterEvent,
    Delivered,
    DeliveryFailed,
    FenceAnswer,
    GrantBegun,
    Granted,
    GrantFailed,
    LoadOrders,
    LossPaged,
    NoteAnswers,
    NoteCordon,
    Noted,
    NoteDrain,
    NoteGranted,
    NoteHeartbeat,
    NoteLift,
    NoteOrphan,
    NoteRegistration,
    Open,
    Opened,
    OrdersLoaded,
    Reach,
    SendDelivery,
    SendGrant,
    SendLift,
    SliceEnded,
    SuspicionDue,
)

__all__ = ["ClusterState", "Effects", "begin", "check", "step"]


def begin(state: ClusterState) -> tuple[ClusterState, Effects]:
    """The first step of every run: what went on beside the last run's loop is forgotten."""
    forgotten: Mapping[str, Any] = {
        "granting": False,
        "grant_again": state.granting or state.grant_again,
        "delivering": False,
        "noting_answers": False,
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
            return _noted(state, event)
        case SliceEnded():
            return slice_ended(state, event, at)
        case SuspicionDue():
            return suspicion_due(state, event, at)
        case BrakeSeen():
            return brake_seen(state, event)
        case FenceAnswer():
            return fence_answered(state, event)
        case Orphan():
            return state, (NoteOrphan(cluster=state.cluster, orphan=event),)
        case CordonMachines():
            return state, (NoteCordon(cluster=state.cluster, cordon=event),)
        case DrainMachines():
            return state, (NoteDrain(cluster=state.cluster, drain=event),)
        case ConfirmLost():
            return confirmed_lost(state, event)
        case LiftBrake():
            return _lifted(state, event)
        case LossPaged():
            return loss_paged(state, event, at)
    raise AssertionError(event)


def _lifted(state: ClusterState, lift: LiftBrake) -> tuple[ClusterState, Effects]:
    """Each silent cluster learns of it when its slice ends, and begins to count anew."""
    note = NoteLift(cluster=state.cluster, lift=lift)
    if lift.brake == "clusters":
        return state, (note,)
    return state, (note, SendLift(lift=LiftMachines(cluster=state.cluster, by=lift.by)))


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
    state, ticking = watch(state, at)
    state, paging = page(state) if state.reach in LOST else (state, ())
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
    ticks = state.reach in WATCHED
    watched = {"epoch": begun.grant.epoch, "reach": Reach.SUSPECT}
    state = _heard(state.model_copy(update=watched), at)
    state, ticking = (state, ()) if ticks else watch(state, at)
    return state, (SendGrant(grant=begun.grant), *ticking)


def _granted(state: ClusterState, event: Granted, at: datetime) -> tuple[ClusterState, Effects]:
    answer = event.answer
    state = state.model_copy(update={"granting": False})
    if state.grant_again or answer.epoch != state.epoch:
        return _want_grant(state) if state.grant_again else (state, ())
    if state.reach in LOST:
        return _want_grant(state)  # Confirmed lost meanwhile: what was granted is closed again.
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
    again = state.deliver_again or (state.delivery_full and len(event.answer.answers) > 0)
    answered = {"deliver_again": again, "noting_answers": True, "deliveries_succeed": True}
    note = NoteAnswers(cluster=state.cluster, answer=event.answer, left_out=event.left_out)
    return state.model_copy(update=answered), (note,)


def _noted(state: ClusterState, noted: Noted) -> tuple[ClusterState, Effects]:
    """A row ahead of us: a grant was begun twice, and the agent was sent the first epoch only."""
    state, effects = _delivery_noted(state, noted)
    if noted.epoch <= state.epoch or state.granting:
        return state, effects
    state, granting = _want_grant(state)
    return state, (*effects, *granting)


def _delivery_noted(state: ClusterState, noted: Noted) -> tuple[ClusterState, Effects]:
    if not state.noting_answers:
        return _want_delivery(state) if noted.undelivered else (state, ())
    state = state.model_copy(update={"noting_answers": False, "delivering": False})
    return _want_delivery(state) if state.deliver_again or noted.news else (state, ())
