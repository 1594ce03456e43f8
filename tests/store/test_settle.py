"""Settle: a number closes once, its room is free once, and old news changes nothing."""

from datetime import timedelta

from domain.attempt import Ending, EndKind, Phase, StopCause
from domain.claims import Requeue, Settle, Settled
from domain.protocol import StopOrder
from domain.reasons import Reason
from domain.shape import shape_digest
from domain.views import EventKind
from store.clusters import fence, mark_suspect
from store.cooldowns import cooling
from store.losses import loss_page
from store.orders import orders
from store.overview import machine, team_usage
from store.tasks import attempts, events
from store.waiting import next_due, pending
from tests.store.world import (
    EXITED,
    FAILED,
    FENCED,
    LOST,
    REFUSED,
    World,
    a_machine,
    a_task,
    cancelled,
    succeeded,
)


def used_cpu(world: World, name: str = "m1") -> int:
    view = world.read(machine, "c1", name)
    assert view is not None
    return view.used.cpu_milli


def test_a_success_ends_the_task_and_frees_room_and_quota(world: World) -> None:
    world.cluster()
    world.running()
    assert used_cpu(world) == 1_000
    assert world.read(team_usage)[0].used.cpu_milli == 1_000
    assert world.settle(then=succeeded()) == Settled(mine=True, closed=1)
    assert world.phase() is Phase.SUCCEEDED
    assert used_cpu(world) == 0
    assert world.read(team_usage)[0].used.cpu_milli == 0


def test_an_attempt_is_shown_to_end_when_it_did_and_not_when_that_was_heard(world: World) -> None:
    world.cluster()
    world.running()
    began = world.now
    started, ended = began + timedelta(seconds=1), began + timedelta(seconds=5)
    world.later(60)
    world.settle(then=succeeded(), started_at=started, ended_at=ended)
    (attempt,) = world.read(attempts, "blue/t")
    assert (attempt.started_at, attempt.ended_at) == (started, ended)
    told = {event.kind: event.at for event in world.read(events, "blue/t")}
    assert (told[EventKind.ENDED], told[EventKind.FINISHED]) == (ended, world.now)


def test_stamps_of_a_clock_that_is_off_are_moved_between_placing_and_hearing(world: World) -> None:
    world.cluster()
    world.running()
    (placed,) = world.read(attempts, "blue/t")
    world.later(60)
    behind = placed.placed_at - timedelta(hours=1)
    world.settle(started_at=behind, ended_at=behind + timedelta(seconds=4))
    (attempt,) = world.read(attempts, "blue/t")
    assert attempt.started_at == placed.placed_at
    assert attempt.ended_at == placed.placed_at + timedelta(seconds=4)


def test_a_failure_with_budget_waits_until_its_backoff_has_passed(world: World) -> None:
    world.cluster()
    world.running()
    due = world.now + timedelta(seconds=5)
    assert world.settle(FAILED, Requeue(not_before=due)).mine
    assert world.phase() is Phase.PENDING
    assert world.read(pending, 0, world.now, 10) == []
    assert world.read(next_due, 0, world.now) == due
    assert world.claim() is None
    world.later(5)
    assert world.claim() == 2


def test_the_same_settle_again_is_mine_again_and_has_no_second_effect(world: World) -> None:
    world.cluster()
    world.running()
    first = world.settle(FAILED)
    assert world.settle(FAILED) == first
    assert world.claim() == 2
    assert world.settle(FAILED).mine
    assert world.phase() is Phase.OFFERED
    assert used_cpu(world) == 1_000


def test_another_ending_of_a_closed_number_is_late_and_only_recorded(world: World) -> None:
    world.cluster()
    world.running()
    world.settle(LOST)
    answer = world.settle(EXITED, succeeded())
    assert answer == Settled(mine=False, closed=1)
    assert world.phase() is Phase.PENDING
    assert world.read(attempts, "blue/t")[0].late_ending == EXITED
    assert world.story()[-1] is EventKind.LATE


def test_a_late_report_on_a_final_row_learns_the_outcome(world: World) -> None:
    world.cluster()
    world.running()
    world.settle(then=succeeded())
    assert world.settle(LOST).final == succeeded().outcome


def test_a_report_from_another_cluster_changes_nothing(world: World) -> None:
    world.cluster()
    world.running()
    assert world.settle(then=succeeded(), cluster="c2") == Settled(mine=False, closed=0)
    assert world.phase() is Phase.RUNNING
    assert used_cpu(world) == 1_000


def test_a_number_that_was_never_minted_changes_nothing(world: World) -> None:
    world.cluster()
    world.enqueue()
    assert world.settle(number=7) == Settled(mine=False, closed=0)
    assert world.settle(key="blue/unknown") == Settled(mine=False, closed=0)


def test_freed_room_rings_a_partition_with_waiting_rows_only(world: World) -> None:
    world.cluster("c1", a_machine(cpu_milli=1_000))
    world.running()
    world.later(60)
    assert world.apply().rings == set()
    full = world.apply(_settle_of(world, "blue/t", 1))
    assert full.rings == set()
    world.running(a_task("t2"))
    world.enqueue(a_task("t3"))
    world.later(60)
    assert world.apply(_settle_of(world, "blue/t2", 1)).rings == {0}


def _settle_of(world: World, key: str, number: int) -> Settle:
    return Settle(
        key=key, number=number, cluster="c1", ending=EXITED, then=succeeded(number), at=world.now
    )


def test_a_number_is_not_closed_as_fenced_while_its_cluster_is_not_lost(world: World) -> None:
    world.cluster()
    world.running()
    assert world.settle(FENCED) == Settled(mine=False, closed=0)
    assert world.phase() is Phase.RUNNING


def test_a_late_settle_of_an_open_number_leaves_nothing_to_wait_for(world: World) -> None:
    world.cluster()
    world.running()
    assert not world.settle(EXITED, late=True).mine
    assert world.phase() is Phase.PENDING
    assert used_cpu(world) == 0


def test_an_abandoned_attempt_keeps_its_room_until_its_late_report(world: World) -> None:
    world.cluster()
    world.running()
    answer = world.withdraw(outcome=cancelled(), abandon=True)
    assert answer.final is not None
    assert answer.final.reason is Reason.MAY_STILL_RUN
    assert used_cpu(world) == 1_000
    assert world.read(team_usage)[0].used.cpu_milli == 0
    _, asked = world.do(orders, "c1")
    assert [o.cause for o in asked if isinstance(o, StopOrder)] == [StopCause.CANCEL]
    stopped = Ending(kind=EndKind.STOPPED, stop_cause=StopCause.CANCEL)
    assert not world.settle(stopped, late=True).mine
    assert used_cpu(world) == 0
    assert world.phase() is Phase.CANCELLED


def test_three_refusals_within_a_minute_cool_the_cluster_down_for_the_shape(world: World) -> None:
    world.cluster()
    shape = ("c1", shape_digest(a_task()))
    for minute in range(3):
        for _ in range(3):
            assert world.read(cooling, world.now) == set()
            _refused_once(world)
        assert world.read(cooling, world.now) == {shape}
        world.enqueue(a_task("waits"))
        assert world.read(next_due, 0, world.now) == world.now + timedelta(minutes=2**minute)
        world.later(60 * 2**minute)
        assert world.read(cooling, world.now) == set()


def test_refusals_far_apart_cool_nothing_down(world: World) -> None:
    world.cluster()
    for _ in range(5):
        _refused_once(world)
        world.later(31)
    assert world.read(cooling, world.now) == set()


def _refused_once(world: World) -> None:
    number = world.task().number + 1 if world.enqueue().closed else 1
    assert world.claim() == number
    assert world.answer("offer", "refused", number=number) == 1
    assert world.settle(REFUSED, number=number).mine


def test_an_ending_that_comes_before_the_loss_is_told_counts(world: World) -> None:
    world.cluster()
    world.running()
    world.later(100)
    _fence_c1(world)
    assert world.settle(EXITED, succeeded()).mine
    assert world.phase() is Phase.SUCCEEDED


def _fence_c1(world: World) -> None:
    assert world.do(mark_suspect, "c1", 1, world.now)
    assert world.do(fence, "c1", 1, world.now)
    assert len(world.do(loss_page, "c1", world.now).lost) == 1
