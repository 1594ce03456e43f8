"""What is free and of use: by resource over open machines, and by what waits or runs."""

from store.headroom import SHAPES_MAX, headroom
from store.machines import cordon
from tests.store.world import World, a_machine, a_task


def test_an_empty_ledger_has_room_for_nothing(world: World) -> None:
    found = world.read(headroom)
    assert (found.machines, found.shapes) == (0, ())
    assert found.resources["cpu_milli"].capacity == 0


def test_free_capacity_is_stranded_where_nothing_that_waits_has_room(world: World) -> None:
    world.cluster(
        "c1",
        a_machine("small", cpu_milli=3_000),
        a_machine("large", cpu_milli=9_000),
        a_machine("shut", cpu_milli=5_000),
    )
    world.do(cordon, "c1", ["shut"], cordoned=True, by="ann", now=world.now)
    for number in range(3):
        big = {"cpu_milli": 4_000, "memory_mib": 400}
        world.enqueue(a_task(f"t{number}", resources=big))
    found = world.read(headroom)
    cpu, memory = found.resources["cpu_milli"], found.resources["memory_mib"]
    assert found.machines == 2
    assert (cpu.capacity, cpu.used, cpu.closed, cpu.free) == (17_000, 0, 5_000, 12_000)
    assert (cpu.largest, cpu.stranded) == (9_000, 3_000)
    assert (memory.largest, memory.stranded) == (100_000, 100_000)
    [shape] = found.shapes
    assert (shape.waiting, shape.machines, shape.more) == (3, 1, 2)
    assert (shape.fragmented.cpu_milli, shape.fragmented.memory_mib) == (3_000, 100_000)
    world.enqueue(a_task("s", resources={"cpu_milli": 1_000, "memory_mib": 100}))
    assert world.read(headroom).resources["cpu_milli"].stranded == 0


def test_what_only_runs_is_looked_at_after_what_waits_and_no_more_than_so_many(
    world: World,
) -> None:
    world.cluster("c1", a_machine("m1", cpu_milli=50_000))
    world.running(a_task("runs"))
    [shape] = world.read(headroom).shapes
    assert (shape.waiting, shape.more) == (0, 49)
    for number in range(SHAPES_MAX + 3):
        asked = {"cpu_milli": 100 + number, "memory_mib": 100}
        world.enqueue(a_task(f"t{number}", resources=asked))
    shapes = world.read(headroom).shapes
    assert len(shapes) == SHAPES_MAX
    assert all(shape.waiting == 1 for shape in shapes)
