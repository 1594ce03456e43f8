"""One simulation from rows to figures: what the command, the benchmarks and the tests all call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from drystone.simulate.accounts import Accounts
from drystone.simulate.check import Checked, check, spread_skew
from drystone.simulate.engine import BATCH_MAX, DEFAULT_POLICY_NAME, Engine
from drystone.simulate.figures import figures
from drystone.simulate.records import MachineRow, TaskRow
from drystone.simulate.replay import Replay, Result, Tell

Clock = Callable[[], float]
"""Seconds of wall time, from any zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a run depends on besides its two files."""

    policy: str = DEFAULT_POLICY_NAME
    seed: int = 0
    batch: int = BATCH_MAX
    """The most tasks of one round."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of it."""

    result: Result
    figures: dict[str, Any]


def simulate(
    machines: Sequence[MachineRow],
    stream: Sequence[TaskRow],
    setting: Setting,
    clock: Clock,
    tell: Tell = lambda _: None,
) -> Ran:
    """Equal rows and setting give equal placements, and equal figures but for the wall time."""
    engine = Engine(machines, stream, setting.policy, setting.seed)
    accounts = Accounts(machines)
    replay = Replay(engine, accounts, stream, setting.batch, tell)
    began = clock()
    result = replay.run()
    given = {
        "policy": setting.policy,
        "seed": setting.seed,
        "batch": setting.batch,
        "machines": len(machines),
    }
    found = figures(result, accounts, rounds=engine.rounds, wall_s=clock() - began, given=given)
    return Ran(result, found)


def checked(machines: Sequence[MachineRow], stream: Sequence[TaskRow], ran: Ran) -> Checked:
    """Check the placements, and put the outcome among the figures."""
    found = check(machines, stream, ran.result.placements)
    skews = spread_skew(machines, stream, ran.result.placements)
    ran.figures["check"] = {
        "placements": found.placements,
        "violations": found.violations,
        "spread_skew_max": max(skews.values(), default=None),
    }
    return found
