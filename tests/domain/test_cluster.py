"""Cluster supervision: a grid of states and events, and the rules of silence as sentences."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from domain.attempt import Ending, EndKind
from domain.cluster import ClusterState, Effects, begin, check, step
from domain.protocol import (
    ConfirmLost,
    CordonMachines,
    Delivery,
    DeliveryAnswer,
    DeliveryHint,
    DrainMachines,
    Grant,
    GrantAnswer,
    Heartbeat,
    OrderAnswer,
    Orphan,
    Register,
)
from domain.supervision import (
    ArmSlice,
    ArmSuspicion,
    BeginGrant,
    BrakeSeen,
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
    NoteDrain,
    NoteGranted,
    NoteHeartbeat,
    NoteOrphan,
    NoteRegistration,
    Opened,
    OrdersLoaded,
    PageLoss,
    Reach,
    SendDelivery,
    SendGrant,
    SliceEnded,
    SuspicionDue,
)

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
TERMS = LeaseTerms()
SLICE = TERMS.slice
DELIVERY = Delivery(cluster="north", epoch=1, orders=())
ANSWER = OrderAnswer(key="blue/t1", number=1, order="offer", answer="admitted")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def heartbeat(epoch: int = 1, instance: str = "a1") -> Heartbeat:
    return Heartbeat(instance=instance, epoch=epoch, seq=1)


def granted(epoch: int = 1, instance: str = "a1") -> Granted:
    return Granted(answer=GrantAnswer(instance=instance, epoch=epoch))


def begun(epoch: int = 1) -> GrantBegun:
    return GrantBegun(grant=Grant(cluster="north", epoch=epoch, closed=()))


def delivered(*answers: OrderAnswer) -> Delivered:
    return Delivered(answer=DeliveryAnswer(instance="a1", epoch=1, answers=answers))


def a_cluster(**changes: object) -> ClusterState:
    """Reachable, granted, in contact since T0."""
    given = {
        "cluster": "north",
        "reach": Reach.REACHABLE,
        "epoch": 1,
        "instance": "a1",
        "granted": True,
        "heard_at": T0,
        "slice_began": T0,
        **changes,
    }
    return ClusterState.model_validate(given)


def run(
    state: ClusterState, events: Iterable[ClusterEvent], at: datetime = T0
) -> tuple[ClusterState, Effects]:
    """The state after all, and the effects of the last."""
    effects: Effects = ()
    for event in events:
        state, effects = step(state, event, at)
        check(state)
    return state, effects


def kinds(effects: Effects) -> list[type]:
    return [type(effect) for effect in effects]


# --- the grid: every state takes every event ----------------------------------------------------

STATES = {
    "new": ClusterState(cluster="north"),
    "registered": ClusterState(cluster="north", instance="a1", granting=True),
    "begun": a_cluster(reach=Reach.SUSPECT, granted=False, granting=True),
    "reachable": a_cluster(),
    "delivering": a_cluster(delivering=True, delivery_full=True),
    "noting": a_cluster(delivering=True, noting_answers=True, deliver_again=True),
    "suspect": a_cluster(reach=Reach.SUSPECT, silent_slices=3, paging=True),
    "nearly fenced": a_cluster(reach=Reach.SUSPECT, silent_slices=TERMS.slices_needed),
    "fenced": a_cluster(reach=Reach.FENCED, granted=False, slice_began=None, paging=True),
    "confirmed": a_cluster(reach=Reach.CONFIRMED, granted=False, slice_began=None),
    "paged again": a_cluster(paging=True, page_again=True, grant_again=True),
}
EVENTS: dict[str, ClusterEvent] = {
    "opened new": Opened(terms=TERMS),
    "opened": Opened(terms=TERMS, reach=Reach.REACHABLE, epoch=1, instance="a1"),
    "opened ahead": Opened(terms=TERMS, reach=Reach.SUSPECT, epoch=9, instance="a9"),
    "opened fenced": Opened(terms=TERMS, reach=Reach.FENCED, epoch=1, instance="a1"),
    "register": Register(instance="a1"),
    "register other": Register(instance="a2"),
    "heartbeat": heartbeat(),
    "heartbeat of another epoch": heartbeat(epoch=0),
    "heartbeat of another agent": heartbeat(instance="a0"),
    "grant begun": begun(2),
    "granted": granted(),
    "granted late": granted(epoch=7),
    "granted by another": granted(instance="a0"),
    "grant failed": GrantFailed(epoch=1),
    "hint": DeliveryHint(),
    "orders": OrdersLoaded(delivery=DELIVERY, full=True),
    "no orders": OrdersLoaded(delivery=None),
    "delivered": delivered(ANSWER),
    "delivered, no answer": delivered(),
    "delivery failed": DeliveryFailed(),
    "noted": Noted(),
    "noted news": Noted(news=True),
    "noted undelivered": Noted(undelivered=True),
    "slice": SliceEnded(began=T0),
    "old slice": SliceEnded(began=T0 - SLICE),
    "suspicion": SuspicionDue(heard_at=T0, due=T0),
    "braked": BrakeSeen(braked=True),
    "not braked": BrakeSeen(braked=False),
    "fenced": FenceAnswer(fenced=True),
    "not fenced": FenceAnswer(fenced=False),
    "orphan": Orphan(
        key="blue/t1",
        number=1,
        machine="m1",
        ending=Ending(kind=EndKind.EXITED, exit_code=0),
        at=T0,
    ),
    "cordon": CordonMachines(machines=("m1",), cordoned=True),
    "drain": DrainMachines(machines=("m1",), drained=True),
    "confirm": ConfirmLost(by="ann", at=T0),
    "confirm machine": ConfirmLost(machine="m1", by="ann", at=T0),
    "paged": LossPaged(reach=Reach.FENCED),
    "paged, unfenced": LossPaged(reach=Reach.SUSPECT),
    "paged, not done": LossPaged(),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_every_state_takes_every_event(state: str, event: str) -> None:
    before = STATES[state]
    after, effects = step(before, EVENTS[event], T0 + SLICE)
    check(after)
    assert kinds(effects).count(BeginGrant) <= 1
    assert kinds(effects).count(PageLoss) <= 1
    assert kinds(effects).count(LoadOrders) <= 1
    assert ClusterState.model_validate_json(after.model_dump_json()) == after


@pytest.mark.parametrize("state", STATES)
def test_a_new_run_asks_the_row_first(state: str) -> None:
    after, effects = begin(STATES[state])
    assert [effect.kind for effect in effects] == ["open"]
    beside = (after.granting, after.delivering, after.paging, after.noting_answers)
    assert not any(beside)


# --- contact and grants -------------------------------------------------------------------------


def test_a_new_agent_is_granted_a_lease_and_then_given_its_orders() -> None:
    state, effects = run(ClusterState(cluster="north"), [Register(instance="a1")])
    assert kinds(effects) == [NoteRegistration, BeginGrant]
    state, effects = run(state, [begun(1)])
    assert kinds(effects) == [SendGrant, ArmSlice]
    assert state.reach is Reach.SUSPECT
    state, effects = run(state, [granted(1)])
    assert kinds(effects) == [NoteGranted, LoadOrders]
    assert (state.reach, state.granted, state.epoch) == (Reach.REACHABLE, True, 1)


def test_a_restarted_agent_is_granted_a_new_epoch() -> None:
    state, effects = run(a_cluster(), [Register(instance="a2")])
    assert kinds(effects) == [NoteRegistration, BeginGrant]
    assert not state.granted
    state, _ = run(state, [begun(2), granted(2, "a2")])
    assert (state.epoch, state.granted, state.instance) == (2, True, "a2")


def test_a_registration_repeated_while_its_grant_is_out_changes_nothing() -> None:
    state, _ = run(ClusterState(cluster="north"), [Register(instance="a1"), begun(1)])
    state, effects = run(state, [Register(instance="a1")])
    assert kinds(effects) == [NoteRegistration]


def test_another_agent_that_registers_while_a_grant_is_out_is_granted_after_it() -> None:
    state, _ = run(ClusterState(cluster="north"), [Register(instance="a1"), begun(1)])
    state, _ = run(state, [Register(instance="a2")])
    state, effects = run(state, [granted(1, "a1")])
    assert kinds(effects) == [BeginGrant]
    assert not state.granted


def test_an_agent_whose_lease_has_passed_registers_again_and_is_granted() -> None:
    _, effects = run(a_cluster(), [Register(instance="a1")])
    assert kinds(effects) == [NoteRegistration, BeginGrant]


def test_a_grant_without_answer_is_begun_again_by_the_next_heartbeat() -> None:
    state, _ = run(ClusterState(cluster="north"), [Register(instance="a1"), begun(1)])
    state, effects = run(state, [GrantFailed(epoch=1)])
    assert effects == ()
    _, effects = run(state, [heartbeat(epoch=0)])
    assert kinds(effects) == [NoteHeartbeat, BeginGrant]


def test_a_heartbeat_of_a_fenced_cluster_begins_a_grant_and_revives_nothing() -> None:
    fenced = STATES["fenced"]
    state, effects = run(fenced, [heartbeat()])
    assert kinds(effects) == [NoteHeartbeat, BeginGrant]
    assert isinstance(effects[0], NoteHeartbeat)
    assert not effects[0].reachable
    assert state.reach is Reach.FENCED


def test_a_heartbeat_of_an_agent_that_was_followed_is_counted_and_proves_nothing() -> None:
    before = a_cluster(silent_slices=2)
    state, effects = run(before, [heartbeat(instance="a0")], T0 + SLICE)
    assert effects == ()
    assert (state.strangers, state.silent_slices, state.heard_at) == (1, 2, T0)


def test_a_late_answer_to_an_older_grant_grants_nothing() -> None:
    state, _ = run(a_cluster(), [Register(instance="a2"), begun(5), granted(4, "a2")])
    assert not state.granted


def test_a_cluster_confirmed_lost_while_its_grant_was_out_is_granted_anew() -> None:
    state, _ = run(a_cluster(), [Register(instance="a1"), begun(2), ConfirmLost(by="ann", at=T0)])
    state, effects = run(state, [granted(2)])
    assert kinds(effects) == [BeginGrant]
    assert not state.granted


# --- delivery -----------------------------------------------------------------------------------


def test_one_delivery_is_in_flight_and_a_hint_meanwhile_looks_again_after_it() -> None:
    state, effects = run(a_cluster(), [DeliveryHint()])
    assert kinds(effects) == [LoadOrders]
    state, effects = run(state, [OrdersLoaded(delivery=DELIVERY)])
    assert kinds(effects) == [SendDelivery]
    state, effects = run(state, [DeliveryHint(), DeliveryHint()])
    assert effects == ()
    state, effects = run(state, [delivered(ANSWER)])
    assert kinds(effects) == [NoteAnswers]
    state, effects = run(state, [Noted(undelivered=True)])
    assert kinds(effects) == [LoadOrders]


def test_an_order_that_the_agent_left_out_waits_for_the_next_heartbeat() -> None:
    state, _ = run(a_cluster(), [DeliveryHint(), OrdersLoaded(delivery=DELIVERY), delivered()])
    state, effects = run(state, [Noted(undelivered=True)])
    assert effects == ()
    state, _ = run(state, [heartbeat()])
    _, effects = run(state, [Noted(undelivered=True)])
    assert kinds(effects) == [LoadOrders]


def test_news_that_came_while_a_delivery_was_out_is_delivered_after_it() -> None:
    state, _ = run(a_cluster(), [DeliveryHint(), OrdersLoaded(delivery=DELIVERY), delivered()])
    _, effects = run(state, [Noted(news=True)])
    assert kinds(effects) == [LoadOrders]


def test_a_full_delivery_is_followed_by_the_next() -> None:
    full = OrdersLoaded(delivery=DELIVERY, full=True)
    state, _ = run(a_cluster(), [DeliveryHint(), full, delivered(ANSWER)])
    _, effects = run(state, [Noted()])
    assert kinds(effects) == [LoadOrders]


def test_offers_are_judged_unanswered_only_while_deliveries_succeed() -> None:
    state, _ = run(a_cluster(), [DeliveryHint(), OrdersLoaded(delivery=DELIVERY)])
    state, _ = run(state, [delivered(), Noted()])
    _, effects = run(state, [DeliveryHint()])
    assert effects == (LoadOrders(cluster="north", deliveries_succeed=True),)
    state, _ = run(state, [DeliveryHint(), OrdersLoaded(delivery=DELIVERY), DeliveryFailed()])
    _, effects = run(state, [DeliveryHint()])
    assert effects == (LoadOrders(cluster="north", deliveries_succeed=False),)


def test_without_a_lease_nothing_is_delivered() -> None:
    _, effects = run(a_cluster(granted=False), [DeliveryHint()])
    assert effects == ()


# --- silence ------------------------------------------------------------------------------------


def test_the_wait_is_the_lease_and_its_margins_in_slices_and_one_more() -> None:
    assert timedelta(seconds=15) == SLICE
    assert TERMS.slices_needed == 6
    assert SLICE * (TERMS.slices_needed - 1) >= seconds(60 * 1.01 + 5)


def silent_slice(state: ClusterState, late_s: float = 0) -> tuple[ClusterState, Effects]:
    """The running slice ends, without a message in it."""
    assert state.slice_began is not None
    ended = SliceEnded(began=state.slice_began)
    return run(state, [ended], state.slice_began + SLICE + seconds(late_s))


def test_a_cluster_is_suspect_when_silent_for_thirty_seconds() -> None:
    state, _ = run(a_cluster(), [heartbeat()], T0 + seconds(10))
    state, effects = silent_slice(state)
    assert kinds(effects) == [ArmSlice]
    state, effects = silent_slice(state)
    assert effects[1] == ArmSuspicion(heard_at=T0 + seconds(10), wait=seconds(10))
    due = SuspicionDue(heard_at=T0 + seconds(10), due=T0 + seconds(40))
    state, effects = run(state, [due], T0 + seconds(40))
    assert kinds(effects) == [MarkSuspect, PageLoss]
    assert state.reach is Reach.SUSPECT


def test_a_heartbeat_before_the_suspicion_is_due_ends_it() -> None:
    state, _ = run(a_cluster(), [heartbeat()], T0 + seconds(29))
    _, effects = run(state, [SuspicionDue(heard_at=T0, due=T0 + seconds(30))], T0 + seconds(30))
    assert effects == ()


def test_an_overdue_suspicion_proves_nothing() -> None:
    due = SuspicionDue(heard_at=T0, due=T0 + seconds(30))
    state, effects = run(a_cluster(), [due], T0 + seconds(33))
    assert effects == ()
    assert state.reach is Reach.REACHABLE


def test_a_heartbeat_in_time_ends_the_suspicion() -> None:
    state, effects = run(a_cluster(reach=Reach.SUSPECT, silent_slices=3), [heartbeat()])
    assert state.reach is Reach.REACHABLE
    assert state.silent_slices == 0
    assert isinstance(effects[0], NoteHeartbeat)
    assert effects[0].reachable


def fence_effects(state: ClusterState, braked: bool = False) -> Effects:
    _, effects = run(state, [BrakeSeen(braked=braked)])
    return effects


def test_six_silent_slices_fence_a_cluster_and_its_loss_is_paged() -> None:
    state = a_cluster(reach=Reach.SUSPECT)
    for number in range(1, TERMS.slices_needed + 1):
        state, effects = silent_slice(state)
        assert kinds(effects) == [ArmSlice, LookAtBrake]
        wanted = [Fence] if number == TERMS.slices_needed else []
        assert kinds(fence_effects(state)) == wanted, number
    state, effects = run(state, [BrakeSeen(braked=False)])
    state, effects = run(state, [FenceAnswer(fenced=True)])
    assert kinds(effects) == [PageLoss]
    assert (state.reach, state.slice_began) == (Reach.FENCED, None)


def test_a_late_slice_does_not_count() -> None:
    state = a_cluster(reach=Reach.SUSPECT, silent_slices=5)
    late, effects = silent_slice(state, late_s=2.5)
    assert late.silent_slices == 5
    assert kinds(effects) == [ArmSlice]
    on_time, _ = silent_slice(late, late_s=1.5)
    assert on_time.silent_slices == 6


def test_the_slice_of_the_last_message_does_not_count() -> None:
    state, _ = run(a_cluster(), [heartbeat()], T0 + seconds(1))
    state, _ = silent_slice(state)
    assert state.silent_slices == 0
    state, _ = silent_slice(state)
    assert state.silent_slices == 1


def test_while_the_brake_holds_the_wait_starts_anew() -> None:
    state, effects = run(STATES["nearly fenced"], [BrakeSeen(braked=True)])
    assert effects == ()
    assert state.silent_slices == 0


def test_a_refused_fence_starts_the_wait_anew() -> None:
    state, effects = run(STATES["nearly fenced"], [FenceAnswer(fenced=False)])
    assert effects == ()
    assert (state.reach, state.silent_slices) == (Reach.SUSPECT, 0)


def test_a_cluster_fenced_under_a_brake_that_lifted_waits_anew() -> None:
    state, effects = run(STATES["fenced"], [LossPaged(reach=Reach.SUSPECT)])
    assert kinds(effects) == [ArmSlice]
    assert (state.reach, state.silent_slices) == (Reach.SUSPECT, 0)


def test_a_deadline_survives_the_change_of_runs() -> None:
    state, _ = begin(a_cluster(reach=Reach.SUSPECT, silent_slices=3, slice_began=T0))
    row = Opened(terms=TERMS, reach=Reach.SUSPECT, epoch=1, instance="a1")
    state, effects = run(state, [row], T0 + seconds(5))
    assert ArmSlice(began=T0, wait=seconds(10)) in effects
    assert state.silent_slices == 3


def test_an_operator_confirms_a_loss_at_once() -> None:
    state, effects = run(a_cluster(), [ConfirmLost(by="ann", at=T0)])
    assert kinds(effects) == [NoteConfirmed, PageLoss]
    assert state.reach is Reach.CONFIRMED
    state, effects = run(a_cluster(), [ConfirmLost(machine="m1", by="ann", at=T0)])
    assert kinds(effects) == [NoteConfirmed, PageLoss]
    assert state.reach is Reach.REACHABLE


def test_orphans_cordons_and_drains_are_written_down() -> None:
    _, effects = run(a_cluster(), [EVENTS["orphan"]])
    assert kinds(effects) == [NoteOrphan]
    _, effects = run(a_cluster(), [EVENTS["cordon"]])
    assert kinds(effects) == [NoteCordon]
    _, effects = run(a_cluster(), [EVENTS["drain"]])
    assert kinds(effects) == [NoteDrain]


@pytest.mark.parametrize("seed", range(200))
def test_no_cluster_is_fenced_before_its_lease_has_certainly_passed(seed: int) -> None:
    """Timers that fire late, messages at any instant: the fence is always later than the lease."""
    rng = Random(seed)
    state, at = a_cluster(), T0
    due: list[tuple[datetime, ClusterEvent]] = [(T0 + SLICE, SliceEnded(began=T0))]
    last_sent, silent_from = T0, T0 + seconds(rng.uniform(0, 120))
    for _ in range(200):
        due.sort(key=lambda entry: entry[0])
        wake, event = due.pop(0)
        late = rng.choice([0, 0, 0, 0.5, 1.9, 2.1, 30])
        at = max(at, wake + seconds(late))
        while last_sent + seconds(10) < min(at, silent_from):
            last_sent += seconds(10)
            state, _ = run(state, [heartbeat()], at)
        queue = [event]
        while queue:
            state, effects = run(state, [queue.pop(0)], at)
            for effect in effects:
                match effect:
                    case ArmSlice(began=began, wait=wait):
                        due.append((at + wait, SliceEnded(began=began)))
                    case ArmSuspicion(heard_at=heard_at, wait=wait):
                        due.append((at + wait, SuspicionDue(heard_at=heard_at, due=at + wait)))
                    case LookAtBrake():
                        queue.append(BrakeSeen(braked=rng.random() < 0.1))
                    case Fence():
                        assert at - last_sent >= seconds(60 * 1.01 + 5), (seed, at, last_sent)
                        return
    assert at - silent_from > seconds(300), f"seed {seed}: silence was never noticed"
