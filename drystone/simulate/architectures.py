"""Four ways to run schedulers over one fleet, compared on a virtual clock with the real engine.

Decisions are the engine's; how long they take is a model of measured costs, given as options. Only
room is shared between schedulers, and no task ends: so a refusal by a whole view is final.
"""

import json
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from drystone.simulate.accounts import Accounts, asked
from drystone.simulate.cells import InputError
from drystone.simulate.engine import BATCH_MAX, Engine, Placed
from drystone.simulate.figures import percentile
from drystone.simulate.formats import DRYSTONE, read_machines, read_tasks
from drystone.simulate.records import MachineRow, TaskRow

US_PER_S = 1_000_000
SPACING_US = 50_000
"""Least time between the starts of two rounds of one scheduler."""
OFFER_US = 1_000_000
"""How long a scheduler holds the machines it has been offered."""
RETRIES_MAX = 100
"""So often a task may lose the race for its machine before the run is given up."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds, measured elsewhere: see the options of the command."""

    round_us: float
    decide_us: float
    commit_us: float
    exchange_us: float


@dataclass(frozen=True, slots=True)
class Architecture:
    """Who looks at which machines, and what a decision costs."""

    name: str
    schedulers: int
    scorers: int = 1
    """Processes that score parts of the fleet for one scheduler."""
    sliced: bool = False
    """A scheduler looks at its own part of the fleet first, and then at all of it."""
    offered: bool = False
    """A scheduler sees only what it is offered, and nobody else is offered the same meanwhile."""

    def decide_us(self, costs: Costs) -> float:
        """Per task. Scorers must hear of each choice before the next: the fleet has changed."""
        if self.scorers == 1:
            return costs.decide_us
        return costs.decide_us / self.scorers + costs.exchange_us


@dataclass(slots=True)
class _View:
    """An engine over some machines, and how much of what was committed it knows."""

    engine: Engine
    machines: Sequence[int]
    known: int = 0
    number_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.number_of = {machine: number for number, machine in enumerate(self.machines)}


@dataclass(slots=True)
class _Scheduler:
    """One loop with its queue."""

    number: int
    arrivals: deque[tuple[float, int]]
    queue: deque[int] = field(default_factory=deque)
    free_at: float = 0.0
    tried: dict[int, set[int]] = field(default_factory=dict)
    """By task, the offered parts of the fleet that had no room for it."""


@dataclass(frozen=True, slots=True)
class _Decided:
    """What one round wishes, from the moment at which its claims are made."""

    at: float
    began: float
    scheduler: _Scheduler
    wishes: list[tuple[int, int]]
    """Task and machine."""
    held: list[tuple[_View, Placed]]
    """The room that its views have set aside meanwhile."""
    refused: list[int]
    """Tasks without room beside those wishes: final, unless a wish does not come true."""


class Contest:
    """One architecture on one stream."""

    def __init__(
        self,
        machines: Sequence[MachineRow],
        stream: Sequence[TaskRow],
        form: Architecture,
        costs: Costs,
        times_us: Sequence[float],
    ) -> None:
        self._form, self._costs, self._times_us = form, costs, times_us
        self._stream = stream
        self.truth = Accounts(machines)
        self.log: list[tuple[int, int]] = []
        """Who committed what: task and machine."""
        parts = [range(n, len(machines), form.schedulers) for n in range(form.schedulers)]
        everything = range(len(machines))
        self._parts = [_view(machines, stream, part) for part in parts] if form.offered else []
        self._views = [
            ([_view(machines, stream, part)] if form.sliced else [])
            + ([] if form.offered else [_view(machines, stream, everything)])
            for part in parts
        ]
        self._schedulers = [_Scheduler(n, deque()) for n in range(form.schedulers)]
        for task, at in enumerate(times_us):
            self._schedulers[task % form.schedulers].arrivals.append((at, task))
        self._pending: list[_Decided] = []
        self.waits_us: list[float] = []
        self.conflicts = 0
        self.claims = 0
        self.over_at = 0.0

    def run(self) -> dict[str, Any]:
        """To the last task."""
        while True:
            commit = min(self._pending, key=lambda one: one.at, default=None)
            starts = [
                (at, one) for one in self._schedulers if (at := self._starts(one)) is not None
            ]
            at, first = min(starts, key=lambda start: start[0], default=(0.0, None))
            if commit is not None and (first is None or commit.at <= at):
                self._pending.remove(commit)
                self._commit(commit)
            elif first is not None:
                self._round(first, at)
            else:
                break
        return {
            "placed": len(self.log),
            "placed_share": round(len(self.log) / len(self._stream), 4),
            "conflict_rate": round(self.conflicts / self.claims, 4) if self.claims else 0.0,
            "placements_per_s": round(len(self.log) / self.over_at * US_PER_S),
            "wait_ms": {f"p{p}": round(percentile(self.waits_us, p) / 1_000, 1) for p in (50, 99)},
        }

    def _starts(self, one: _Scheduler) -> float | None:
        """When its next round can begin; None when it has nothing to do."""
        if any(decided.scheduler is one for decided in self._pending):
            return None
        if one.queue:
            return one.free_at
        return max(one.free_at, one.arrivals[0][0]) if one.arrivals else None

    def _round(self, one: _Scheduler, at: float) -> None:
        """Look at the fleet as it is known, decide; the claims are made when that is done."""
        while one.arrivals and one.arrivals[0][0] <= at:
            one.queue.append(one.arrivals.popleft()[1])
        turn = (one.number + int(at // OFFER_US)) % self._form.schedulers
        left = self._batch(one, turn)
        if not left:
            # Nothing new for these machines: wait for the next offer, or the next task.
            until = (at // OFFER_US + 1) * OFFER_US
            one.free_at = min(until, one.arrivals[0][0]) if one.arrivals else until
            return
        decided = 0
        wishes: list[tuple[int, int]] = []
        held: list[tuple[_View, Placed]] = []
        views = [self._parts[turn]] if self._form.offered else self._views[one.number]
        for view in views:
            self._learn(view)
            for task, machine in wishes:
                number = view.number_of[machine]
                view.engine.observe(task, number)
                held.append((view, Placed(task, number, ())))
            found = view.engine.place(left, int(at))
            decided += len(left)
            held += [(view, wish) for wish in found.placed]
            wishes += [(wish.task, view.machines[wish.machine]) for wish in found.placed]
            left = list(found.refused)
        done_at = at + self._costs.round_us + decided * self._form.decide_us(self._costs)
        self._pending.append(_Decided(done_at, at, one, wishes, held, left))
        if self._form.offered:
            for task in left:
                one.tried.setdefault(task, set()).add(turn)
            # What no part of the fleet has had room for is left out; the rest waits for its turn.
            one.queue.extend(t for t in left if len(one.tried[t]) < self._form.schedulers)

    def _batch(self, one: _Scheduler, turn: int) -> list[int]:
        """Those at the head of the queue that have not been tried on this offer."""
        fresh = [t for t in one.queue if turn not in one.tried.get(t, ())][:BATCH_MAX]
        chosen = set(fresh)
        one.queue = deque(task for task in one.queue if task not in chosen)
        return fresh

    def _learn(self, view: _View) -> None:
        """Take over what others have committed since the last look."""
        for task, machine in self.log[view.known :]:
            number = view.number_of.get(machine)
            if number is not None:
                view.engine.observe(task, number)
        view.known = len(self.log)

    def _commit(self, decided: _Decided) -> None:
        """Each claim is compared with what is true: whoever comes second keeps the task."""
        # The views forget what was wished; they learn from the log what has become true.
        for view, wish in decided.held:
            view.engine.leave(wish)
        one = decided.scheduler
        done_at = decided.at + len(decided.wishes) * self._costs.commit_us
        lost = []
        for task, machine in decided.wishes:
            demand, there = self._stream[task].demand, self.truth.free[machine]
            self.claims += 1
            if all(a <= b for a, b in zip(asked(demand), there, strict=True) if a):
                self.truth.take(machine, demand, ())
                self.log.append((task, machine))
                self.waits_us.append(done_at - self._times_us[task])
                self.over_at = max(self.over_at, done_at)
            else:
                lost.append(task)
        self.conflicts += len(lost)
        assert self.conflicts <= RETRIES_MAX * len(self._stream), "the race does not end"
        one.queue.extendleft(reversed(lost + decided.refused if lost else []))
        one.free_at = max(decided.began + SPACING_US, done_at)


def _view(machines: Sequence[MachineRow], stream: Sequence[TaskRow], part: range) -> _View:
    return _View(Engine([machines[n] for n in part], stream), part)


def compare(
    machines: Sequence[MachineRow],
    stream: Sequence[TaskRow],
    *,
    schedulers: int,
    rate: float,
    costs: Costs,
    seed: int,
) -> dict[str, dict[str, Any]]:
    """By architecture: a backlog of all tasks at once (`backlog`), and tasks that come at random at
    `rate` per second (`stream`)."""
    rng = random.Random(seed)
    at, times_us = 0.0, []
    for _ in stream:
        at += rng.expovariate(rate) * US_PER_S
        times_us.append(at)
    forms = (
        Architecture("single scheduler", 1),
        Architecture("parallel scoring", 1, scorers=schedulers),
        Architecture("offers", schedulers, offered=True),
        Architecture("shared state", schedulers),
        Architecture("shared state, own part first", schedulers, sliced=True),
    )
    return {
        form.name: {
            "backlog": Contest(machines, stream, form, costs, [0.0] * len(stream)).run(),
            "stream": Contest(machines, stream, form, costs, times_us).run(),
        }
        for form in forms
    }


def main(
    machines: Annotated[Path, typer.Option(help="Machines, drystone format.")],
    tasks: Annotated[Path, typer.Option(help="Tasks without GPUs; times are ignored.")],
    schedulers: Annotated[int, typer.Option(min=2, max=64)] = 4,
    rate: Annotated[float, typer.Option(min=1, help="Tasks per second of the stream.")] = 5_000,
    round_us: Annotated[float, typer.Option(min=0, help="Cost of a round besides its tasks.")] = (
        5_000
    ),
    decide_us: Annotated[float, typer.Option(min=0, help="Of a decision, per task.")] = 2,
    commit_us: Annotated[float, typer.Option(min=0, help="Of a claim in the ledger.")] = 50,
    exchange_us: Annotated[
        float, typer.Option(min=0, help="Of a message there and back between processes.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Single scheduler, parallel scoring, offers, shared state: equal tasks on equal fleets."""
    try:
        fleet, stream = read_machines(machines, DRYSTONE), read_tasks(tasks, DRYSTONE)
    except InputError as error:
        Console(stderr=True).print(str(error), markup=False, soft_wrap=True)
        raise typer.Exit(2) from error
    if any(row.demand.gpu_total_milli for row in stream):
        raise typer.BadParameter("must ask for no GPUs", param_hint="--tasks")
    costs = Costs(round_us, decide_us, commit_us, exchange_us)
    found = compare(fleet, stream, schedulers=schedulers, rate=rate, costs=costs, seed=seed)
    if as_json:
        print(json.dumps(found))
        return
    shown = Table("", "placements/s", "conflicts", "placed", "wait p50, ms", "wait p99, ms")
    for name, one in found.items():
        backlog, waits = one["backlog"], one["stream"]["wait_ms"]
        shown.add_row(
            name,
            str(backlog["placements_per_s"]),
            f"{100 * one['stream']['conflict_rate']:.2f} %",
            f"{100 * one['stream']['placed_share']:.2f} %",
            str(waits["p50"]),
            str(waits["p99"]),
        )
    Console().print(shown)


if __name__ == "__main__":
    typer.run(main)
