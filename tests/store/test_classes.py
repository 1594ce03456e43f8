"""What no machine could ever hold is refused, however well the ledger remembers what could."""

from domain.claims import Enqueued
from store.classes import _HOLDERS, machine_classes, surely_held
from tests.store.world import World, a_machine, a_task

ASKED = {"cpu_milli": 3_500, "memory_mib": 7}


def shape_known(world: World) -> bool:
    """The shape of the task asked for is proven by one look-up."""
    return bool(world.read(surely_held, set(_HOLDERS)))


def refused(answer: Enqueued) -> bool:
    """No machine could ever hold it."""
    return answer.refusal is not None


def test_a_shape_is_proven_by_the_class_that_was_found_for_it(world: World) -> None:
    _HOLDERS.clear()
    world.cluster("c1", a_machine("m1", labels={"b": "1", "a": "2"}))
    assert not shape_known(world)
    assert not refused(world.enqueue(a_task("t1", resources=ASKED)))
    assert shape_known(world)
    assert not refused(world.enqueue(a_task("t2", resources=ASKED)))


def test_once_the_last_machine_of_that_class_is_gone_the_others_are_asked(world: World) -> None:
    world.cluster("c1", a_machine("m1"))
    world.enqueue(a_task("t1", resources=ASKED))
    world.beat("c1", a_machine("m1", cpu_milli=1_000))
    assert [one.capacity.cpu_milli for one in world.read(machine_classes)] == [1_000]
    assert refused(world.enqueue(a_task("t2", resources=ASKED)))
