"""The bell: rung once, heard in time, and no reason to look again is slept through."""

from domain.claims import Enqueue
from store.bell import bell_busy, bell_idle, bell_round, ring_if_needed, ring_waiting
from store.overview import partitions
from tests.store.world import World, a_machine, a_task, succeeded


def enqueue_rings(world: World, task_id: str) -> set[int]:
    """The partitions that a new task rings."""
    return world.apply(Enqueue(spec=a_task(task_id), digest="d", at=world.now)).rings


def test_an_idle_partition_is_rung_once_until_it_answers(world: World) -> None:
    assert enqueue_rings(world, "a") == {0}
    assert enqueue_rings(world, "b") == set()
    world.later(1)
    assert enqueue_rings(world, "c") == {0}


def test_a_busy_partition_is_not_rung_while_it_makes_rounds(world: World) -> None:
    enqueue_rings(world, "a")
    world.do(bell_busy, 0, world.now)
    for _ in range(3):
        world.later(4)
        world.do(bell_round, 0, world.now)
        assert enqueue_rings(world, f"t{world.now.second}") == set()
    world.later(5)
    assert enqueue_rings(world, "z") == {0}


def test_it_sleeps_only_while_nothing_has_come_since_the_round_began(world: World) -> None:
    wakes = world.do(bell_busy, 0, world.now)
    enqueue_rings(world, "a")
    assert not world.do(bell_idle, 0, wakes, world.now)
    wakes = world.do(bell_round, 0, world.now)
    assert world.do(bell_idle, 0, wakes, world.now)
    assert [view.bell for view in world.read(partitions)] == ["idle"]
    assert enqueue_rings(world, "b") == {0}


def test_freed_room_is_a_reason_to_look_again(world: World) -> None:
    world.cluster("c1", a_machine(cpu_milli=1_000))
    world.running()
    world.enqueue(a_task("waits"))
    wakes = world.do(bell_busy, 0, world.now)
    world.settle(then=succeeded())
    assert not world.do(bell_idle, 0, wakes, world.now)


def test_new_room_rings_only_where_rows_are_due(world: World) -> None:
    assert world.do(ring_waiting, world.now) == set()
    world.cluster()
    world.running()
    wakes = world.do(bell_busy, 0, world.now)
    world.do(bell_idle, 0, wakes, world.now)
    assert world.do(ring_waiting, world.now) == set()
    world.enqueue(a_task("waits"))
    wakes = world.do(bell_busy, 0, world.now)
    world.do(bell_idle, 0, wakes, world.now)
    assert world.do(ring_waiting, world.now) == {0}


def test_a_heartbeat_rings_again_for_a_ring_that_was_lost(world: World) -> None:
    enqueue_rings(world, "a")
    assert world.do(ring_if_needed, world.now) == set()
    world.later(1)
    assert world.do(ring_if_needed, world.now) == {0}
    assert world.do(ring_if_needed, world.now) == set()


def test_waiting_rows_of_a_sleeping_partition_are_looked_at_now_and_then(world: World) -> None:
    enqueue_rings(world, "a")
    wakes = world.do(bell_busy, 0, world.now)
    assert world.do(bell_idle, 0, wakes, world.now)
    world.later(9)
    assert world.do(ring_if_needed, world.now) == set()
    world.later(1)
    assert world.do(ring_if_needed, world.now) == {0}
