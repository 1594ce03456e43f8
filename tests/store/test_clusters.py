"""Contact, grants, suspicion and the brake, as the rows of clusters record them."""

import pytest

from domain.attempt import Phase
from domain.protocol import Register
from domain.supervision import BrakeTerms, Reach
from store.brake import brake, lift_brake
from store.clusters import (
    begin_grant,
    confirm_lost,
    fence,
    grant_answered,
    mark_suspect,
    register,
)
from store.fleet import fleet
from store.losses import loss_page
from store.overview import cluster, machine
from store.waiting import pending
from tests.store.world import FENCED, LOST, World, a_machine, a_task


def state(world: World, name: str = "c1") -> Reach:
    """Where the cluster stands."""
    view = world.read(cluster, name)
    assert view is not None
    return view.state


def used_cpu(world: World, name: str = "m1") -> int:
    """What claims hold of a machine of c1."""
    view = world.read(machine, "c1", name)
    assert view is not None
    return view.used.cpu_milli


def lose(world: World, name: str = "c1", epoch: int = 1) -> None:
    """Silent until the deadline has certainly passed."""
    assert world.do(mark_suspect, name, epoch, world.now)
    assert world.do(fence, name, epoch, world.now)


def several(world: World, count: int) -> list[str]:
    """So many reachable clusters, each with a machine."""
    names = [f"c{number}" for number in range(1, count + 1)]
    for name in names:
        world.cluster(name, a_machine(f"m-{name}"))
    return names


def test_a_cluster_is_given_work_only_once_its_agent_has_taken_a_grant(world: World) -> None:
    world.do(register, "c1", Register(instance="1", http_address="http://a"), world.now)
    assert state(world) is Reach.ABSENT
    granted = world.do(begin_grant, "c1", world.now)
    assert (granted.epoch, granted.closed) == (1, ())
    assert world.read(fleet).clusters == {"c1": False}
    world.do(grant_answered, "c1", 1, (), world.now)
    assert world.read(fleet).clusters == {"c1": True}


def test_the_epoch_rises_with_every_grant(world: World) -> None:
    assert [world.cluster(), world.grant(), world.grant()] == [1, 2, 3]


def test_the_answer_to_an_older_grant_says_nothing(world: World) -> None:
    world.cluster()
    world.do(begin_grant, "c1", world.now)
    world.do(grant_answered, "c1", 1, (), world.now)
    assert state(world) is Reach.SUSPECT


def test_a_heartbeat_of_the_same_epoch_ends_a_suspicion(world: World) -> None:
    epoch = world.cluster()
    assert world.do(mark_suspect, "c1", epoch, world.now)
    world.enqueue()
    world.later(60)
    assert world.beat(epoch=epoch - 1) == set() or state(world) is Reach.SUSPECT
    assert state(world) is Reach.SUSPECT
    world.later(60)
    assert world.beat() == {0}
    assert state(world) is Reach.REACHABLE


def test_a_heartbeat_never_ends_the_fenced_state(world: World) -> None:
    world.cluster()
    lose(world)
    world.beat()
    assert state(world) is Reach.FENCED


def test_suspicion_and_fence_of_an_older_epoch_are_refused(world: World) -> None:
    world.cluster()
    world.grant()
    assert not world.do(mark_suspect, "c1", 1, world.now)
    assert not world.do(fence, "c1", 1, world.now)
    assert state(world) is Reach.REACHABLE


def test_a_reachable_cluster_is_not_fenced(world: World) -> None:
    world.cluster()
    assert not world.do(fence, "c1", 1, world.now)


def test_a_grant_lists_every_closed_number_that_may_still_be_held(world: World) -> None:
    world.cluster("c1", a_machine(cpu_milli=9_000))
    for task_id in ("abandoned", "ended", "open"):
        world.running(a_task(task_id))
    world.withdraw(abandon=True, key="blue/abandoned")
    world.settle(LOST, key="blue/ended")
    granted = world.do(begin_grant, "c1", world.now)
    assert granted.closed == ("blue/abandoned#1",)
    assert used_cpu(world) == 2_000
    world.do(grant_answered, "c1", granted.epoch, ["blue/abandoned#1", "blue/open#1"], world.now)
    assert used_cpu(world) == 1_000
    assert world.phase("blue/open") is Phase.RUNNING


def test_a_fenced_number_that_no_workflow_has_closed_is_good_again_after_a_grant(
    world: World,
) -> None:
    world.cluster()
    world.running()
    lose(world)
    assert len(world.do(loss_page, "c1", world.now).lost) == 1
    assert world.grant() == 2
    assert not world.settle(FENCED).mine
    assert world.phase() is Phase.RUNNING


def test_one_silent_cluster_of_two_sets_no_brake(world: World) -> None:
    several(world, 2)
    lose(world)
    assert not world.read(brake).held


def test_the_brake_is_set_by_the_second_silent_cluster_above_a_fifth(world: World) -> None:
    several(world, 9)
    assert world.do(mark_suspect, "c1", 1, world.now)
    assert not world.read(brake).held
    assert world.do(mark_suspect, "c2", 1, world.now)
    assert world.read(brake).held
    assert not world.do(fence, "c1", 1, world.now)


def test_a_fifth_of_all_clusters_is_not_yet_too_many(world: World) -> None:
    several(world, 10)
    for name in ("c1", "c2"):
        world.do(mark_suspect, name, 1, world.now)
    assert not world.read(brake).held


def test_the_brake_lifts_when_enough_clusters_are_back(world: World) -> None:
    several(world, 5)
    for name in ("c1", "c2"):
        world.do(mark_suspect, name, 1, world.now)
    world.later(30)
    world.beat("c2")
    assert not world.read(brake).held
    view = world.read(cluster, "c1")
    assert view is not None
    assert view.silent_since == world.now
    assert world.do(fence, "c1", 1, world.now)


def test_an_operator_lifts_the_brake_until_another_cluster_falls_silent(world: World) -> None:
    several(world, 5)
    for name in ("c1", "c2"):
        world.do(mark_suspect, name, 1, world.now)
    assert world.do(lift_brake, world.now, "ann")
    assert not world.do(lift_brake, world.now, "ann")
    assert (world.read(brake).held, world.read(brake).by) == (False, "ann")
    world.beat("c3")
    assert not world.read(brake).held
    world.do(mark_suspect, "c3", 1, world.now)
    assert world.read(brake).held


def test_a_cluster_known_to_be_lost_is_no_part_of_the_share(world: World) -> None:
    several(world, 5)
    for name in ("c1", "c2"):
        world.do(mark_suspect, name, 1, world.now)
    world.do(confirm_lost, "c1", None, "ann", world.now)
    assert state(world, "c1") is Reach.CONFIRMED
    world.do(confirm_lost, "c2", None, "ann", world.now)
    assert not world.read(brake).held


def test_a_granted_cluster_that_was_never_heard_of_again_can_be_fenced(world: World) -> None:
    world.cluster()
    granted = world.do(begin_grant, "c1", world.now)
    assert world.do(fence, "c1", granted.epoch, world.now)
    assert world.do(fence, "c1", granted.epoch, world.now)
    assert state(world) is Reach.FENCED


@pytest.mark.parametrize("again", [1, 2])
def test_registering_and_granting_lose_no_open_attempt(world: World, again: int) -> None:
    world.cluster()
    world.running()
    for _ in range(again):
        world.do(register, "c1", Register(instance="2"), world.now)
        world.grant()
    assert world.phase() is Phase.RUNNING
    assert world.read(pending, 0, world.now, 9) == []


def test_the_brake_holds_from_as_many_as_the_settings_say(world: World) -> None:
    several(world, 4)
    lax = BrakeTerms(clusters=3, percent=50)
    for name in ("c1", "c2"):
        world.do(mark_suspect, name, 1, world.now, brake=lax)
    assert not world.read(brake).held
    world.do(mark_suspect, "c3", 1, world.now, brake=lax)
    seen = world.read(brake)
    assert (seen.held, seen.silent, seen.counted) == (True, 3, 4)
    world.do(begin_grant, "c1", world.now, brake=lax)
    assert not world.read(brake).held


def test_an_agent_says_that_it_holds_the_brake_on_its_machines(world: World) -> None:
    world.cluster()
    world.beat(braked=True)
    since = world.now
    world.later(10)
    world.beat(braked=True)
    assert world.read(brake).machines == {"c1": since}
    world.beat()
    assert world.read(brake).machines == {}
