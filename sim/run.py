"""One run of one seed: a time of faults, then healing, then everything must end."""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TextIO

from sqlalchemy import Engine

from sim.checks import Safety, Violation, judge, unfinished
from sim.clock import SECOND
from sim.faults import CHAOS_US, faults
from sim.strikes import strike
from sim.workload import workload
from sim.world import World, empty_ledger

HEALING_US_MAX = 30 * 60 * SECOND
"""So long after the last fault every task must have ended."""
LOOK_US = 5 * SECOND


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    seed: int
    hash: str
    events: int
    virtual_s: float
    violation: str | None
    counts: Counter[str]
    lines: tuple[str, ...]
    """The last lines of the trace of a run with a violation."""


def world_of(seed: int, engine: Engine, out: TextIO | None = None) -> World:
    """The world of this seed, not yet begun."""
    name = f"world {seed}"
    work = workload(f"{name}/work")
    return World(name, work, faults(f"{name}/faults"), empty_ledger(engine), out)


def run(
    seed: int, engine: Engine, out: TextIO | None = None, *, every_write: bool = False
) -> Result:
    """Its whole life."""
    return run_world(seed, world_of(seed, engine, out), every_write=every_write)


def run_world(seed: int, world: World, *, every_write: bool = False) -> Result:
    """The same for a world that was made, and perhaps changed, by the caller."""
    violation = None
    try:
        _live(world, Safety(world, 1) if every_write else Safety(world))
    except (Violation, AssertionError) as wrong:
        violation = f"{type(wrong).__name__}: {wrong}"
        world.trace.line("world", "violation", violation)
    return Result(
        seed=seed,
        hash=world.trace.hash,
        events=world.clock.events,
        virtual_s=world.clock.now_us / SECOND,
        violation=violation,
        counts=world.trace.counts,
        lines=tuple(world.trace.kept) if violation else (),
    )


def _live(world: World, safety: Safety) -> None:
    world.begin()
    for fault in world.faults.strikes:
        world.clock.after(fault.at_us, partial(strike, world, fault))
    world.clock.run_until(CHAOS_US, safety)
    world.heal()
    end_us = world.clock.now_us + HEALING_US_MAX
    while left := unfinished(world):
        if world.clock.now_us >= end_us:
            raise Violation(f"not done after healing: {'; '.join(left)}")
        world.clock.run_until(world.clock.now_us + LOOK_US, safety)
    safety.audit()
    judge(world)
