"""Machines being emptied: what may go goes, what cannot is kept and named, and it can be ended."""

from datetime import timedelta
from typing import Any

import pytest

from domain.attempt import Phase
from domain.protocol import DrainMachines
from domain.views import ClusterDrainView, DrainView
from store.drains import LOOK_S, drains_due, set_drain, stop_drained
from store.machines import cordon
from store.orders import orders, undelivered
from store.overview import cluster, clusters, machine
from tests.store.world import STOPPED, World, a_machine, a_task

M1, M2 = a_machine("m1"), a_machine("m2")


def drain(world: World, *machines: str, deadline_s: float | None = None) -> None:
    deadline = None if deadline_s is None else world.now + timedelta(seconds=deadline_s)
    wish = DrainMachines(machines=machines, drained=True, deadline=deadline, by="ann")
    world.do(set_drain, "c1", wish, world.now)


def undrain(world: World, *machines: str) -> None:
    world.do(set_drain, "c1", DrainMachines(machines=machines, drained=False), world.now)


def look(world: World) -> int:
    """The next look at what is drained; how many were told to stop."""
    world.later(LOOK_S)
    assert world.read(drains_due, "c1", world.now)
    stopped = world.do(stop_drained, "c1", world.now)
    assert not world.read(drains_due, "c1", world.now), "not again at once"
    return stopped


def told(world: World, name: str = "m1") -> DrainView:
    view = world.read(machine, "c1", name)
    assert view is not None
    assert view.cordoned
    assert view.drain is not None
    return view.drain


def emptied(world: World, name: str) -> bool:
    """Drained, and cordoned for that."""
    view = world.read(machine, "c1", name)
    assert view is not None
    assert view.cordoned == (view.drain is not None)
    return view.drain is not None


def started(world: World, *names: str, cpu_milli: int = 1_000, **rules: Any) -> None:
    """Attempts on m1."""
    for name in names:
        asks = {"cpu_milli": cpu_milli, "memory_mib": 100}
        world.enqueue(a_task(name, resources=asks, **rules))
        assert world.claim(f"blue/{name}") == 1
        world.admit(f"blue/{name}")


def test_what_finds_room_elsewhere_is_stopped_and_placed_there(world: World) -> None:
    world.cluster("c1", M1, M2)
    world.running()
    drain(world, "m1")
    assert look(world) == 1
    assert [order.kind for order in world.do(orders, "c1")[1]] == ["stop"]
    assert told(world).attempts == 1
    world.settle(STOPPED)
    assert (told(world).attempts, told(world).blocked_by) == (0, ())
    assert world.claim(machine="m1") is None
    assert world.claim(machine="m2") == 2


def test_what_has_nowhere_to_go_is_kept_and_named_until_there_is_room(world: World) -> None:
    world.cluster("c1", M1)
    world.running()
    drain(world, "m1")
    assert look(world) == 0
    assert told(world) == DrainView(
        by="ann", since=told(world).since, attempts=1, blocked_by=("blue/t",)
    )
    assert world.phase() is Phase.RUNNING
    assert not world.read(undelivered, "c1")
    world.beat("c1", M2)
    assert look(world) == 1
    assert told(world).blocked_by == ()


def test_a_cluster_says_how_many_of_its_machines_are_emptied_and_what_is_left(world: World) -> None:
    world.cluster("c1", M1, M2)
    world.cluster("c2", a_machine("m9"))
    world.running()
    drain(world, "m1", "m2")
    shown = {view.name: view for view in world.read(clusters)}
    assert (shown["c1"].drained_machines, shown["c1"].drained_attempts) == (2, 1)
    assert (shown["c2"].drained_machines, shown["c2"].drained_attempts) == (0, 0)
    undrain(world)
    view = world.read(cluster, "c1")
    assert view is not None
    assert (view.drained_machines, view.drained_attempts, view.attempts) == (0, 0, 1)


def test_what_joins_a_cluster_that_is_emptied_is_emptied_too(world: World) -> None:
    world.cluster("c1", M1)
    drain(world, deadline_s=60)
    world.beat("c1", M1, M2)
    assert (told(world, "m2").by, told(world, "m2").deadline) == ("ann", told(world).deadline)
    whole = world.read(cluster, "c1")
    assert whole is not None
    assert whole.drain == ClusterDrainView(
        by="ann", since=told(world).since, deadline=told(world).deadline
    )
    undrain(world, "m2")
    world.beat("c1", a_machine("m2", cpu_milli=9_000))
    assert not emptied(world, "m2"), "it has not joined anew"
    undrain(world)
    world.beat("c1", a_machine("m3"))
    assert not emptied(world, "m1")
    assert not emptied(world, "m3")
    whole = world.read(cluster, "c1")
    assert whole is not None
    assert whole.drain is None


def test_a_drain_of_all_machines_by_name_takes_in_no_other(world: World) -> None:
    world.cluster("c1", M1)
    drain(world, "m1")
    world.beat("c1", M2)
    assert not emptied(world, "m2")


def test_no_two_count_on_the_same_room(world: World) -> None:
    world.cluster("c1", M1, a_machine("m2", cpu_milli=3_000))
    started(world, "a", "b", cpu_milli=2_000)
    drain(world, "m1")
    assert look(world) == 1
    assert told(world).blocked_by == ("blue/b",)


def test_a_machine_that_rules_forbid_is_no_room(world: World) -> None:
    world.cluster("c1", a_machine("m1", zone="a"), a_machine("m2", zone="b"))
    started(world, "a", constraints={"zones": ["a"]})
    drain(world, "m1")
    assert look(world) == 0


def test_at_its_deadline_a_drain_stops_what_is_left_and_the_work_waits(world: World) -> None:
    world.cluster("c1", M1)
    world.running()
    drain(world, "m1", deadline_s=LOOK_S * 2)
    assert look(world) == 0
    assert look(world) == 1
    world.settle(STOPPED)
    assert world.phase() is Phase.PENDING


def test_the_end_of_a_drain_takes_back_what_was_not_sent(world: World) -> None:
    world.cluster("c1", M1, M2)
    world.running()
    drain(world, "m1")
    assert look(world) == 1
    assert world.phase() is Phase.STOPPING
    undrain(world, "m1")
    assert world.phase() is Phase.RUNNING
    assert world.do(orders, "c1")[1] == []
    view = world.read(machine, "c1", "m1")
    assert view is not None
    assert (view.cordoned, view.drain) == (False, None)


def test_what_was_sent_stands_when_the_drain_ends_and_one_attempt_lives(world: World) -> None:
    world.cluster("c1", M1, M2)
    world.running()
    drain(world, "m1")
    assert look(world) == 1
    world.do(orders, "c1")
    undrain(world, "m1")
    assert world.phase() is Phase.STOPPING
    assert world.claim() is None, "the first number is open"
    world.settle(STOPPED)
    assert world.claim(machine="m1") == 2


def test_an_offer_whose_stop_is_taken_back_is_offered_again(world: World) -> None:
    world.cluster("c1", M1, M2)
    world.enqueue()
    world.claim()
    drain(world, "m1")
    assert look(world) == 1
    undrain(world, "m1")
    assert [order.kind for order in world.do(orders, "c1")[1]] == ["offer"]


def test_a_machine_cordoned_before_stays_so(world: World) -> None:
    world.cluster("c1", M1)
    world.do(cordon, "c1", ["m1"], cordoned=True, by="bob", now=world.now)
    drain(world, "m1")
    drain(world, "m1", deadline_s=60)
    undrain(world, "m1", "unknown")
    view = world.read(machine, "c1", "m1")
    assert view is not None
    assert (view.cordoned, view.drain) == (True, None)


def test_without_names_the_whole_cluster_is_emptied_into_another(world: World) -> None:
    world.cluster("c1", M1, M2)
    world.running()
    drain(world)
    assert told(world, "m2").attempts == 0
    assert look(world) == 0
    world.cluster("c2", a_machine("m9"))
    assert look(world) == 1


def test_one_look_is_bounded_and_the_next_goes_on_elsewhere(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.drains.SEARCHES_PER_LOOK_MAX", 2)
    world.cluster("c1", M1, a_machine("m2", cpu_milli=500), a_machine("m3", cpu_milli=400))
    started(world, "huge")
    started(world, "small", cpu_milli=300)
    drain(world, "m1")
    assert sum(look(world) for _ in range(2)) == 1
    assert world.phase("blue/small") is Phase.STOPPING
    assert world.phase("blue/huge") is Phase.RUNNING
