"""What a small world is asked to do: machines, tasks, and how each attempt behaves."""

from dataclasses import dataclass
from random import Random

from domain.machine import MachineReport
from domain.resources import Resources
from domain.task import OnLoss, TaskSpec
from sim.clock import SECOND
from sim.trees import Plan

CLUSTERS_MAX = 3
MACHINES_MAX = 3
TASKS_MIN = 4
TASKS_MAX = 12
ARRIVE_US = 60 * SECOND
LEASES_S = (16, 24, 60)
TEAMS = ("blue", "red", "green")


@dataclass(frozen=True)
class Arrival:
    """A task, and when it is submitted."""

    at_us: int
    spec: TaskSpec


@dataclass(frozen=True)
class Workload:
    """Clusters with their machines, and the tasks."""

    seed: str
    machines: dict[str, tuple[MachineReport, ...]]
    arrivals: tuple[Arrival, ...]
    fails_first: dict[str, int]
    """By task: how many of its first attempts exit with 1."""
    lease_s: int
    """Of scheduler, agents and keepers; a short one lets more happen in a short run."""

    def plan(self, key: str, number: int) -> Plan:
        """How this attempt behaves: the same whenever it is asked."""
        rng = Random(f"{self.seed}/{key}/{number}")
        heeds = rng.random() < 0.8
        return Plan(
            duration_ms=rng.choice((50, 5_000, *(2 * (rng.randrange(150_000),)))),
            exit_code=1 if number <= self.fails_first[key] else 0,
            stop_ms=rng.randrange(1_500) if heeds else 10**9,
            stop_code=rng.choice((0, 143)),
        )


def workload(seed: str) -> Workload:
    """A world that one seed describes."""
    rng = Random(seed)
    clusters = [f"c{i + 1}" for i in range(rng.randint(1, CLUSTERS_MAX))]
    machines = {name: _machines(name, rng) for name in clusters}
    arrivals = tuple(
        Arrival(rng.randrange(ARRIVE_US), _spec(f"t{i + 1}", rng))
        for i in range(rng.randint(TASKS_MIN, TASKS_MAX))
    )
    fails_first: dict[str, int] = {a.spec.key: rng.choice((0, 0, 0, 0, 1, 2, 4)) for a in arrivals}
    return Workload(seed, machines, arrivals, fails_first, rng.choice(LEASES_S))


def _machines(cluster: str, rng: Random) -> tuple[MachineReport, ...]:
    return tuple(
        MachineReport(
            name=f"{cluster}m{i + 1}",
            instance="",
            capacity=Resources(cpu_milli=rng.choice((2_000, 4_000, 8_000)), memory_mib=8_192),
        )
        for i in range(rng.randint(1, MACHINES_MAX))
    )


def _spec(name: str, rng: Random) -> TaskSpec:
    losses = (OnLoss.REPLACE_AFTER_FENCE,) * 6 + (OnLoss.WAIT, OnLoss.REPLACE_AT_ONCE)
    return TaskSpec.model_validate(
        {
            "team": rng.choice(TEAMS),
            "id": name,
            "command": ["work"],
            "resources": {"cpu_milli": rng.choice((500, 1_000, 2_000)), "memory_mib": 512},
            "retries": {"failures": rng.randint(0, 3), "backoff": {"cap_ms": 8_000}},
            "queue_timeout_s": rng.choice((None, None, None, 40)),
            "run_timeout_s": rng.choice((None, None, None, 20)),
            "grace_s": rng.randint(0, 8),
            "on_loss": rng.choice(losses),
            "accept_late_success": rng.random() < 0.25,
        }
    )
