"""What goes wrong in a world: which faults its seed has switched on, and when each one strikes."""

from dataclasses import dataclass
from random import Random

from sim.clock import SECOND

CHAOS_US = 150 * SECOND
"""Then everything heals."""
STRIKES_MAX = 16

KINDS = (
    "worker_crash",
    "agent_crash",
    "agent_stall",
    "keeper_crash",
    "keeper_stall",
    "cut_cluster",
    "cut_machine",
    "terminate",
    "reset",
    "cancel",
    "stop_order",
    "continue",
    "cordon",
    "terminate_entity",
)
SILENT_SHARE = 0.4
SILENCES = ("cut_cluster", "cut_cluster", "cut_machine", "keeper_stall", "agent_stall")
ONGOING = (
    "crash_per_step",
    "crash_per_effect",
    "slow_network",
    "late_orders",
    "repeat_tasks",
    "repeat_activities",
    "repeat_signals",
    "late_timers",
    "launch_fails",
)


@dataclass(frozen=True)
class Strike:
    """One fault: what, when, and for how long where it lasts."""

    at_us: int
    kind: str
    for_us: int
    draw: float
    """Chooses whom it strikes."""


@dataclass(frozen=True)
class Faults:
    """A seed's choice: about half of the kinds, so that none hides behind the others."""

    ongoing: frozenset[str]
    strikes: tuple[Strike, ...]


def faults(seed: str) -> Faults:
    """What goes wrong in the world of this seed."""
    rng = Random(seed)
    if rng.random() < SILENT_SHARE:
        return _silence(rng)
    kinds = [kind for kind in KINDS if rng.random() < 0.5]
    ongoing = frozenset(kind for kind in ONGOING if rng.random() < 0.35)
    strikes = (
        [_strike(kinds, rng) for _ in range(rng.choice((0, 4, 8, STRIKES_MAX)))] if kinds else []
    )
    return Faults(ongoing, tuple(sorted(strikes, key=lambda strike: strike.at_us)))


def _silence(rng: Random) -> Faults:
    """Few faults, all of them long silences: most of the rules are about these."""
    strikes = []
    for _ in range(rng.randint(1, 4)):
        for_us = rng.randrange(40 * SECOND, 140 * SECOND)
        at_us = rng.randrange(10 * SECOND, 90 * SECOND)
        strikes.append(Strike(at_us, rng.choice(SILENCES), for_us, rng.random()))
    ongoing = frozenset(kind for kind in ONGOING if rng.random() < 0.1)
    return Faults(ongoing, tuple(sorted(strikes, key=lambda strike: strike.at_us)))


def _strike(kinds: list[str], rng: Random) -> Strike:
    """Some last seconds, some outlast every lease."""
    for_us = rng.choice(
        (
            rng.randrange(SECOND // 5, 5 * SECOND),
            rng.randrange(SECOND, 30 * SECOND),
            *(2 * (rng.randrange(20 * SECOND, 120 * SECOND),)),
        )
    )
    return Strike(rng.randrange(CHAOS_US), rng.choice(kinds), for_us, rng.random())
