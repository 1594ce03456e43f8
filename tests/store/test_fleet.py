"""Machines as agents report them and as placement loads them."""

from concurrent.futures import ThreadPoolExecutor
from typing import cast

from sqlalchemy import Engine

from domain.constraint import Taint
from domain.fleet import Beside, Fleet, MachineColumns, MachineStanding, Proposal, Vector
from store.claims import claim
from store.classes import machine_classes
from store.clusters import confirm_lost
from store.columns import changed_columns, fleet_columns
from store.fleet import fleet, fleet_changes
from store.machines import cordon
from store.overview import machine, machines
from store.session import reading, transaction
from tests.store.world import World, a_machine, a_task, succeeded


def standing(fleet_now: Fleet, name: str = "m1") -> MachineStanding:
    """One machine of what was loaded."""
    return next(m for m in fleet_now.machines if m.name == name)


def names(fleet_now: Fleet) -> set[str]:
    """Which machines were loaded."""
    return {m.name for m in fleet_now.machines}


def test_a_machine_is_loaded_as_it_was_reported(world: World) -> None:
    taint = Taint(key="gpu", value="a")
    report = a_machine(labels={"a": "b"}, taints=[taint], zone="z", rack="r", extra={"x": 2})
    world.cluster("c1", report)
    loaded = standing(world.read(fleet))
    assert (loaded.cluster, loaded.zone, loaded.rack) == ("c1", "z", "r")
    assert (loaded.labels, loaded.taints) == ({"a": "b"}, (taint,))
    assert loaded.capacity == (4_000, 100_000, 0, 0, 0)
    assert loaded.capacity_extra == {"x": 2}
    assert loaded.used == (0, 0, 0, 0, 0)
    assert loaded.reachable
    assert not loaded.cordoned


def test_changes_hold_what_changed_and_every_cluster(world: World) -> None:
    world.cluster("c1", a_machine("m1"), a_machine("m2"), a_machine("m3"))
    before = world.read(fleet)
    assert names(before) == {"m1", "m2", "m3"}
    assert names(world.read(fleet_changes, before.revision)) == set()
    world.enqueue()
    world.claim(machine="m2")
    changes = world.read(fleet_changes, before.revision)
    assert names(changes) == {"m2"}
    assert standing(changes, "m2").used == (1_000, 100, 0, 0, 0)
    assert changes.clusters == {"c1": True}
    world.do(cordon, "c1", ["m3", "unknown"], cordoned=True, by="ann", now=world.now)
    assert names(world.read(fleet_changes, changes.revision)) == {"m3"}
    assert names(world.read(fleet_changes, before.revision)) == {"m2", "m3"}


def test_every_kind_of_change_of_used_room_is_seen(world: World) -> None:
    world.cluster()
    world.enqueue()
    seen = world.read(fleet).revision
    for change in (
        world.claim,
        lambda: world.settle(then=succeeded()),
        lambda: world.beat("c1", a_machine(cpu_milli=5_000)),
        lambda: world.beat(states=[{"machine": "m1", "reachable": False}]),
    ):
        change()
        changes = world.read(fleet_changes, seen)
        assert names(changes) == {"m1"}
        seen = changes.revision
    assert not standing(world.read(fleet)).reachable


def test_an_unchanged_report_changes_nothing(world: World) -> None:
    world.cluster()
    seen = world.read(fleet).revision
    world.beat("c1", a_machine())
    assert names(world.read(fleet_changes, seen)) == set()


def test_a_report_keeps_what_is_used_and_a_cordon(world: World) -> None:
    world.cluster()
    world.running()
    world.do(cordon, "c1", ["m1"], cordoned=True, by="ann", now=world.now)
    world.beat("c1", a_machine(cpu_milli=9_000, instance="2"))
    view = world.read(machine, "c1", "m1")
    assert view is not None
    assert (view.used.cpu_milli, view.capacity.cpu_milli) == (1_000, 9_000)
    assert (view.cordoned, view.cordoned_by) == (True, "ann")


def test_a_machine_that_shrinks_below_what_is_used_takes_no_more(world: World) -> None:
    world.cluster()
    for task_id in "abc":
        world.running(a_task(task_id))
    world.beat("c1", a_machine(cpu_milli=2_000))
    world.enqueue()
    assert world.claim() is None


def test_attempts_with_rules_between_tasks_are_counted_remnants_included(world: World) -> None:
    world.cluster()
    rules = {"service": "db", "anti_affinity": ["web", "batch"]}
    for task_id in ("a", "b"):
        world.running(a_task(task_id, constraints=rules))
    world.running(a_task("plain"))
    beside = (Beside("blue", "db", ("batch", "web"), 2),)
    assert standing(world.read(fleet)).beside == beside
    seen = world.read(fleet).revision
    world.withdraw(abandon=True, key="blue/a")
    assert standing(world.read(fleet)).beside == beside
    world.do(confirm_lost, "c1", "m1", "ann", world.now)
    changes = world.read(fleet_changes, seen)
    assert standing(changes).beside == (Beside("blue", "db", ("batch", "web"), 1),)


def test_what_a_claim_shuns_in_wider_domains_reaches_the_rounds(world: World) -> None:
    world.cluster()
    rules = {"apart": [{"service": "web", "over": "zone"}], "anti_affinity": ["batch"]}
    world.running(a_task("a", constraints=rules))
    world.running(a_task("b", constraints={"near": [{"service": "web", "over": "rack"}]}))
    beside = (Beside("blue", None, ("batch", "web@zone"), 1),)
    assert standing(world.read(fleet)).beside == beside


def test_classes_count_their_machines(world: World) -> None:
    world.cluster("c1", a_machine("m1"), a_machine("m2"), a_machine("m3", zone="z"))
    assert sorted(c.machines for c in world.read(machine_classes)) == [1, 2]
    world.beat("c1", a_machine("m2", zone="z"))
    assert {(c.zone, c.machines) for c in world.read(machine_classes)} == {("", 1), ("z", 2)}
    world.beat("c1", a_machine("m1", zone="z"))
    assert {(c.zone, c.machines) for c in world.read(machine_classes)} == {("z", 3)}


def test_a_new_machine_rings_for_the_rows_that_wait(world: World) -> None:
    world.cluster()
    world.enqueue()
    world.later(60)
    assert world.beat("c1", a_machine("m2")) == {0}
    world.later(60)
    assert world.beat(states=[{"machine": "m2", "reachable": False}]) == {0}  # Nobody answered.


def test_machines_are_listed_in_pages(world: World) -> None:
    world.cluster("c1", a_machine("m1"), a_machine("m2"))
    world.cluster("c2", a_machine("m1"))
    first = world.read(machines, limit=2)
    assert [(m.cluster, m.name) for m in first] == [("c1", "m1"), ("c1", "m2")]
    rest = world.read(machines, after="c1/m2", limit=2)
    assert [(m.cluster, m.name) for m in rest] == [("c2", "m1")]
    assert [m.name for m in world.read(machines, cluster="c2")] == ["m1"]


def test_a_reader_of_changes_misses_none_while_writers_race(engine: Engine) -> None:
    """What is pieced together from changes equals what a full read finds."""
    world = World(engine)
    world.cluster("c1", *(a_machine(f"m{i}", cpu_milli=100_000) for i in range(8)))
    for number in range(48):
        world.enqueue(a_task(f"t{number}"))
    with reading(engine) as connection:
        first = fleet(connection)
    pieced = {m.name: m for m in first.machines}
    revision = first.revision

    def write(thread: int) -> None:
        for number in range(thread, 48, 4):
            wish = Proposal(f"blue/t{number}", "c1", f"m{number % 8}")
            with transaction(engine) as connection:
                claim(connection, 0, [wish], world.now)

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, thread) for thread in range(4)]
        done = False
        while not done:
            done = all(writer.done() for writer in writers)
            with reading(engine) as connection:
                changes = fleet_changes(connection, revision)
            revision = changes.revision
            pieced.update({m.name: m for m in changes.machines})
    for writer in writers:
        writer.result()
    assert pieced == {m.name: m for m in world.read(fleet).machines}


def singly(columns: MachineColumns) -> dict[str, MachineStanding]:
    """The machines that columns describe, by name."""
    machines = {}
    for at, name in enumerate(columns.name):
        labels, taints = columns.markings[columns.marking[at]]
        capacity, used = (tuple(c[at] for c in given) for given in (columns.capacity, columns.used))
        has, uses = columns.extras.get(at, ({}, {}))
        machines[name] = MachineStanding(
            cluster=columns.cluster[at],
            name=name,
            zone=columns.zone[at],
            rack=columns.rack[at],
            labels=labels,
            taints=taints,
            capacity=cast(Vector, capacity),
            used=cast(Vector, used),
            cordoned=bool(columns.cordoned[at]),
            reachable=bool(columns.reachable[at]),
            capacity_extra=has,
            used_extra=uses,
            beside=columns.beside.get(at, ()),
        )
    return machines


def test_columns_say_the_same_as_machines_one_by_one(world: World) -> None:
    rules = {"service": "db", "anti_affinity": ["web"]}
    taint = Taint(key="gpu", value="a")
    plain, marked = a_machine("m1"), a_machine("m2", labels={"a": "b"}, taints=[taint], zone="z")
    world.cluster("c1", plain, marked, a_machine("m3", extra={"x": 2}))
    before = world.read(fleet_columns)
    assert singly(before.machines) == {m.name: m for m in world.read(fleet).machines}
    world.running(a_task(constraints=rules, resources={"cpu_milli": 1, "extra": {"x": 1}}), "m3")
    world.do(cordon, "c1", ["m1"], cordoned=True, by="ann", now=world.now)
    changes = world.read(changed_columns, before.revision)
    expected = world.read(fleet_changes, before.revision)
    assert changes.machines.name
    assert singly(changes.machines) == {m.name: m for m in expected.machines}
    assert (changes.clusters, changes.revision) == (expected.clusters, expected.revision)
