"""Each planted fault is caught, and by the invariant that it breaks."""

from functools import partial

import pytest
from sqlalchemy import Engine

from domain.machine import MachineReport
from domain.resources import Resources
from domain.task import TaskSpec
from sim.clock import SECOND
from sim.faults import Faults
from sim.run import run_world, world_of
from sim.workload import Arrival, Workload
from sim.world import World, empty_ledger, new_ledger
from tests.sim import plants

SEEDS_MAX = 60
"""Searched when the seed that caught it last catches it no more."""

TWICE = ("able to run at once", "launched twice")
STUCK = ("not done after healing",)
CAUGHT = [
    (plants.a_keeper_never_freezes, 24, TWICE),
    (plants.a_scheduler_does_not_wait_for_the_deadline, 23, TWICE),
    (plants.a_ledger_releases_fenced_claims, 24, TWICE),
    (plants.a_settle_ignores_the_fence, 28, ("never terminated", "no row", *STUCK)),
    (plants.a_bell_that_nobody_hears, 0, STUCK),
]


@pytest.mark.parametrize(
    ("plant", "known", "broken"), CAUGHT, ids=[plant.__name__ for plant, _, _ in CAUGHT]
)
def test_a_planted_fault_is_caught(plant, known, broken):
    engine = new_ledger()
    for seed in (known, *range(SEEDS_MAX)):
        world = world_of(seed, engine)
        plant(world)
        violation = run_world(seed, world).violation
        if violation is not None:
            print(f"seed {seed}: {violation[:200]}")
            assert any(words in violation for words in broken), violation
            return
    pytest.fail(f"no seed below {SEEDS_MAX} caught it")


# --- an offer that was held up until after its stop -------------------------------------------


def _held_up(seed: int, engine: Engine) -> World:
    """One machine, one task: its offer arrives after it was given up, cancelled and stopped."""
    name = f"held up {seed}"
    machine = MachineReport(
        name="c1m1", instance="", capacity=Resources(cpu_milli=2_000, memory_mib=2_000)
    )
    task = TaskSpec(id="t1", command=("work",), team="blue")
    work = Workload(
        name, {"c1": (machine,)}, (Arrival(15 * SECOND, task),), {task.key: 0}, lease_s=60
    )
    world = World(name, work, Faults(frozenset(), ()), empty_ledger(engine))

    def hold_up(share: float) -> None:
        world.agents["c1"].late_orders = share

    world.clock.after(14 * SECOND, partial(hold_up, 1.0))
    world.clock.after(16 * SECOND, partial(hold_up, 0.0))
    world.clock.after(27 * SECOND, partial(world.cancel, task.key, abandon=False))
    return world


def _stories(plant: plants.Plant | None) -> list[str]:
    engine = new_ledger()
    wrongs = []
    for seed in range(12):
        world = _held_up(seed, engine)
        if plant is not None:
            plant(world)
        wrongs.append(run_world(seed, world).violation or "")
    return wrongs


def test_an_offer_held_up_until_after_its_stop_starts_nothing():
    assert set(_stories(None)) == {""}


def test_an_agent_that_ignores_its_tombstones_is_caught():
    wrongs = _stories(plants.an_agent_ignores_its_tombstones)
    assert any("its claim is released" in wrong for wrong in wrongs), wrongs
