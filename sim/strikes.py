"""How each kind of fault strikes a world, and how it passes."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from domain.attempt import StopCause
from domain.ids import task_workflow_id
from sim.faults import Strike
from sim.world import World

DRAINED_SHARE = 0.6
DRAIN_S = 20.0

T = TypeVar("T")


def strike(world: World, fault: Strike) -> None:
    """It happens now."""
    rng = Random(f"{world.seed}/{fault.at_us}/{fault.draw}")
    _STRIKES[fault.kind](world, fault, rng)


def _later(world: World, fault: Strike, act: Callable[[], None]) -> None:
    world.clock.after(fault.for_us, act)


def _worker_crash(world: World, fault: Strike, _rng: Random) -> None:
    world.worker.crash()
    _later(world, fault, world.restart_worker)


def _agent_crash(world: World, fault: Strike, rng: Random) -> None:
    agent = rng.choice(list(world.agents.values()))
    agent.process.crash()
    _later(world, fault, partial(world.restart, agent))


def _agent_stall(world: World, fault: Strike, rng: Random) -> None:
    agent = rng.choice(list(world.agents.values()))
    if agent.process.up:
        agent.stall(fault.for_us)


def _keeper_crash(world: World, fault: Strike, rng: Random) -> None:
    keeper = rng.choice(world.keepers)
    keeper.process.crash()
    _later(world, fault, partial(world.restart, keeper))


def _keeper_stall(world: World, fault: Strike, rng: Random) -> None:
    keeper = rng.choice(world.keepers)
    if keeper.process.up:
        keeper.stall(fault.for_us)


def _cut(world: World, fault: Strike, rng: Random, near: str, far: str) -> None:
    """One way, the other, or both."""
    ways = rng.choice((((near, far),), ((far, near),), ((near, far), (far, near))))
    for way in ways:
        world.network.block(*way)
        _later(world, fault, partial(world.network.heal, *way))


def _cut_cluster(world: World, fault: Strike, rng: Random) -> None:
    _cut(world, fault, rng, f"agent-{rng.choice(list(world.agents))}", "temporal")


def _cut_machine(world: World, fault: Strike, rng: Random) -> None:
    keeper = rng.choice(world.keepers)
    agent = keeper.machine.name.partition("m")[0]
    _cut(world, fault, rng, keeper.process.name, f"agent-{agent}")


def _some_task(world: World, rng: Random) -> str | None:
    """One that was submitted."""
    keys = [a.spec.key for a in world.workload.arrivals if a.at_us < world.clock.now_us]
    return _choice(keys, rng)


def _choice(among: Sequence[T], rng: Random) -> T | None:
    return rng.choice(among) if among else None


def _terminate(world: World, fault: Strike, rng: Random) -> None:
    """Now and then somebody submits it again."""
    key = _some_task(world, rng)
    if key is None:
        return
    world.gone.add(key)
    world.temporal.terminate(task_workflow_id(key))
    if rng.random() < 0.3:
        _later(world, fault, partial(world.submit, world.spec(key)))


def _reset(world: World, _fault: Strike, rng: Random) -> None:
    key = _some_task(world, rng)
    if key is not None:
        world.reset.add(key)
        world.temporal.reset(task_workflow_id(key), signals=rng.random() < 0.5)


def _cancel(world: World, _fault: Strike, rng: Random) -> None:
    key = _some_task(world, rng)
    if key is not None:
        world.cancel(key, abandon=rng.random() < 0.2)


def _stop_order(world: World, _fault: Strike, rng: Random) -> None:
    key = _some_task(world, rng)
    cause = rng.choice((StopCause.PREEMPT, StopCause.DRAIN))
    if key is not None and world.worker.up:
        world.worker.spawn(world.scheduler.stop_order(key, cause))


def _continue(world: World, fault: Strike, _rng: Random) -> None:
    """For a while, workflow tasks end in continue-as-new now and then."""
    world.temporal.rollover = 0.1

    def over() -> None:
        world.temporal.rollover = 0.0

    _later(world, fault, over)


def _terminate_entity(world: World, _fault: Strike, rng: Random) -> None:
    """A cluster's or partition's workflow: the next heartbeat or ring starts another."""
    entities = [e.id for e in world.temporal.executions.values() if e.kind.name != "task"]
    workflow = _choice(entities, rng)
    if workflow is not None:
        world.temporal.terminate(workflow)


def _cordon(world: World, fault: Strike, rng: Random) -> None:
    """Often it is emptied as well, and half of those times within some seconds at most."""
    machine = rng.choice(world.keepers).machine.name
    if fault.draw < DRAINED_SHARE:
        deadline_s = DRAIN_S if fault.draw < DRAINED_SHARE / 2 else None
        world.drain(machine, drained=True, deadline_s=deadline_s)
        _later(world, fault, partial(world.drain, machine, drained=False))
        return
    world.cordon(machine, cordoned=True)
    _later(world, fault, partial(world.cordon, machine, cordoned=False))


_STRIKES: dict[str, Callable[[World, Strike, Random], None]] = {
    "worker_crash": _worker_crash,
    "agent_crash": _agent_crash,
    "agent_stall": _agent_stall,
    "keeper_crash": _keeper_crash,
    "keeper_stall": _keeper_stall,
    "cut_cluster": _cut_cluster,
    "cut_machine": _cut_machine,
    "terminate": _terminate,
    "reset": _reset,
    "cancel": _cancel,
    "stop_order": _stop_order,
    "continue": _continue,
    "cordon": _cordon,
    "terminate_entity": _terminate_entity,
}
