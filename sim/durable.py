"""The stand-in for Temporal: keeps what it has acknowledged, and repeats what it is not sure of.

A workflow task takes the committed state, feeds it the messages that wait, and commits at its end;
a worker that dies before leaves its ledger operations behind, and the next task asks them again.
Knows nothing of what workflows mean: that is a `Kind`.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, Protocol

from sim.clock import MS, SECOND, Clock
from sim.process import Process, Steps
from sim.trace import Trace

POINTS_KEPT_MAX = 6
EFFECTS_PER_EVENT_MAX = 200
STICKY_US = SECOND
"""How long a killed worker holds up the workflows it had."""
POLL_US = 500 * MS
AGENT_START_S = 10
AGENT_CLOSE_S = 10

Perform = Generator[None, None, Any]


class Kind(Protocol):
    """What workflows of one kind do: the pure core's doors, and who carries out its effects."""

    name: str

    def begin(self, state: Any, at: datetime) -> tuple[Any, tuple[Any, ...]]:
        """The first step of a run."""

    def step(self, state: Any, message: Any, at: datetime, chance: float) -> tuple[Any, Any]:
        """One message."""

    def read(self, raw: Any) -> Any:
        """A signal's payload as a message; None when it does not fit."""

    def perform(self, effect: Any) -> Perform | None:
        """A local activity, in steps; None when the effect goes on beside the loop."""

    def command(self, execution: "Execution", effect: Any) -> None:
        """Begin what goes on beside the loop, once the workflow task is committed."""

    def ended(self, state: Any) -> bool:
        """True when the workflow completes."""

    def asked_again(self) -> Any:
        """The message that a reset puts into the inbox; None for none."""


@dataclass
class Point:
    """Where a reset can go back to: a committed workflow task."""

    state: Any
    begun: bool
    told: int
    draws: int


@dataclass
class Execution:
    """One workflow, a run after the other."""

    id: str
    kind: Kind
    state: Any
    run: int = 1
    status: str = "running"
    begun: bool = False
    inbox: list[Any] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    """Every message of this run, read or not."""
    draws: int = 0
    commits: int = 0
    busy: int = 0
    points: list[Point] = field(default_factory=list)

    @property
    def running(self) -> bool:
        """True while signals are accepted."""
        return self.status == "running"

    @property
    def due(self) -> bool:
        """True when a workflow task is wanted."""
        return self.running and (not self.begun or bool(self.inbox))


@dataclass
class Activity:
    """Work of a worker that is done at least once."""

    execution: Execution
    run: int
    make: Callable[[], Steps]
    retry_us: int
    done: bool = False


class Temporal:
    """Executions, their signals, activities and timers. `worker` is who carries them on."""

    def __init__(self, clock: Clock, trace: Trace, rng: Random, worker: Process) -> None:
        self.clock = clock
        self.trace = trace
        self.rng = rng
        self.worker = worker
        self.seed = rng.getrandbits(64)
        self.executions: dict[str, Execution] = {}
        self.repeat_tasks = 0.0
        self.repeat_activities = 0.0
        self.repeat_signals = 0.0
        self.rollover = 0.0
        self.late_timers = 0.0
        self._activities: list[Activity] = []
        worker.on_crash = self._worker_died

    # --- what clients do ------------------------------------------------------------------------

    def start(self, workflow: str, kind: Kind, state: Any) -> bool:
        """Start it unless it runs; False when it runs already."""
        there = self.executions.get(workflow)
        if there is not None and there.running:
            return False
        run = 1 if there is None else there.run + 1
        self.executions[workflow] = Execution(workflow, kind, state, run=run)
        self.trace.line("temporal", "start", f"{workflow} run {run}")
        self._wake(self.executions[workflow])
        return True

    def signal(self, workflow: str, raw: Any) -> bool:
        """False is NOT_FOUND: it does not exist or has closed."""
        there = self.executions.get(workflow)
        if there is None or not there.running:
            return False
        message = there.kind.read(raw)
        assert message is not None, raw
        self.put(there, there.run, message)
        if self.repeat_signals and self.rng.random() < self.repeat_signals:
            self.clock.after(self.rng.randrange(5 * SECOND), lambda: self._again(workflow, message))
        return True

    def terminate(self, workflow: str) -> None:
        """As a person does it in the Web UI."""
        there = self.executions[workflow]
        if there.running:
            there.status = "terminated"
            self.trace.line("temporal", "terminate", workflow)

    def reset(self, workflow: str, *, signals: bool) -> None:
        """As a person does it in the Web UI: a new run from an earlier point."""
        there = self.executions[workflow]
        if not there.points:
            return
        point = self.rng.choice(there.points)
        kept = there.told[point.told :] if signals else []
        there.run += 1
        there.status = "running"
        there.state, there.begun, there.draws = point.state, point.begun, point.draws
        again = there.kind.asked_again()
        there.inbox = [*([] if again is None else [again]), *kept]
        there.told = [*there.told[: point.told], *there.inbox]
        there.points = [p for p in there.points if p.told <= point.told]
        self.trace.line("temporal", "reset", f"{workflow} run {there.run} signals={signals}")
        self._wake(there)

    # --- what goes on beside a workflow's loop ---------------------------------------------------

    def put(self, execution: Execution, run: int, message: Any) -> None:
        """Into the inbox, if that run is still the one."""
        if execution.run == run and execution.running:
            execution.inbox.append(message)
            execution.told.append(message)
            self._wake(execution)

    def timer(self, execution: Execution, delay_us: int, message: Any) -> None:
        """A durable timer; now and then it fires late."""
        run = execution.run
        if self.late_timers and self.rng.random() < self.late_timers:
            delay_us += self.rng.randrange(20 * SECOND)
        self.clock.after(max(0, delay_us), lambda: self.put(execution, run, message))

    def activity(
        self, execution: Execution, make: Callable[[], Steps], retry_us: int = 2_500 * MS
    ) -> None:
        """At least once on a worker; its result is a message."""
        activity = Activity(execution, execution.run, make, retry_us)
        self._activities.append(activity)
        self._dispatch(activity)
        if self.repeat_activities and self.rng.random() < self.repeat_activities:
            self.clock.after(self.rng.randrange(5 * SECOND), lambda: self._dispatch(activity))

    def ask_agent(
        self,
        execution: Execution,
        take: Callable[[Callable[[Any], None]], bool],
        answered: Callable[[Any], Any],
        failed: Any,
    ) -> None:
        """An activity on an agent's queue, tried once. `take` says whether a poller has it now."""
        run = execution.run
        over = [False]

        def end(message: Any) -> None:
            if not over[0]:
                over[0] = True
                self.put(execution, run, message)

        def offer(left: int) -> None:
            if take(lambda answer: end(answered(answer))):
                self.clock.after(AGENT_CLOSE_S * SECOND, lambda: end(failed))
            elif left > 0:
                self.clock.after(POLL_US, lambda: offer(left - 1))
            else:
                end(failed)

        offer(AGENT_START_S * SECOND // POLL_US)

    # --- workflow tasks -------------------------------------------------------------------------

    def worker_is_back(self) -> None:
        """Everything that waited for a worker goes on."""
        for execution in self.executions.values():
            if execution.due:
                self.clock.after(
                    self.rng.randrange(STICKY_US),
                    lambda e=execution: self._wake(e),  # type: ignore[misc]
                )
        for activity in self._activities:
            self.clock.after(
                self.rng.randrange(activity.retry_us),
                lambda a=activity: self._dispatch(a),  # type: ignore[misc]
            )

    def _again(self, workflow: str, message: Any) -> None:
        there = self.executions[workflow]
        self.put(there, there.run, message)

    def _worker_died(self) -> None:
        for execution in self.executions.values():
            execution.busy = 0

    def _wake(self, execution: Execution) -> None:
        if not execution.due or execution.busy or not self.worker.up:
            return
        execution.busy = 1
        self.worker.spawn(self._task(execution), lambda _: self._task_over(execution))
        if self.repeat_tasks and self.rng.random() < self.repeat_tasks:
            self.worker.spawn(self._task(execution))

    def _task_over(self, execution: Execution) -> None:
        execution.busy = 0
        self._wake(execution)

    def _task(self, execution: Execution) -> Steps:
        """One workflow task. Nothing of it is kept unless it reaches its end undisturbed."""
        at = (execution.run, execution.commits)
        kind, state, draws = execution.kind, execution.state, execution.draws
        waiting = list(execution.inbox)
        now = self.clock.instant
        commands: list[Any] = []
        if not execution.begun:
            state, effects = kind.begin(state, now)
            state, draws = yield from self._carry_out(execution, state, effects, draws, commands)
        taken = 0
        for message in waiting:
            if kind.ended(state):
                break
            state, effects = kind.step(state, message, now, self._chance(execution, draws))
            state, draws = yield from self._carry_out(
                execution, state, effects, draws + 1, commands
            )
            taken += 1
        yield
        if (execution.run, execution.commits) != at or not execution.running:
            return
        if kind.ended(state) and len(execution.inbox) > len(waiting):
            return  # Unhandled: it may not complete over messages it has not seen.
        self._commit(execution, Point(state, True, 0, draws), taken, commands)

    def _carry_out(
        self, execution: Execution, state: Any, effects: Any, draws: int, commands: list[Any]
    ) -> Generator[None, None, tuple[Any, int]]:
        """An answer is the very next event: nothing of the inbox comes between."""
        due = list(effects)
        for _ in range(EFFECTS_PER_EVENT_MAX):
            if not due:
                return state, draws
            effect = due.pop(0)
            performing = execution.kind.perform(effect)
            if performing is None:
                commands.append(effect)
                continue
            yield
            answer = yield from performing
            yield
            chance = self._chance(execution, draws)
            state, more = execution.kind.step(state, answer, self.clock.instant, chance)
            draws += 1
            due.extend(more)
        raise AssertionError(f"{execution.id}: no end of effects, the next is {due[0]!r}")

    def _commit(self, execution: Execution, after: Point, taken: int, commands: list[Any]) -> None:
        execution.state, execution.draws, execution.begun = after.state, after.draws, True
        execution.inbox = execution.inbox[taken:]
        execution.commits += 1
        told = len(execution.told) - len(execution.inbox)
        execution.points = [
            *execution.points[-POINTS_KEPT_MAX + 1 :],
            Point(after.state, True, told, after.draws),
        ]
        if execution.kind.ended(after.state):
            execution.status = "completed"
            self.trace.line("temporal", "complete", execution.id)
            return
        if self.rollover and self.rng.random() < self.rollover:
            # Continue-as-new: the state and the inbox go on, what went on beside the loop does not.
            execution.run += 1
            execution.begun = False
            execution.points = []
            execution.told = list(execution.inbox)
            self.trace.line("temporal", "continue", f"{execution.id} run {execution.run}")
            return
        for effect in commands:
            execution.kind.command(execution, effect)

    def _dispatch(self, activity: Activity) -> None:
        execution = activity.execution
        if activity.done or not self.worker.up or execution.run != activity.run:
            return

        def done(message: Any) -> None:
            if not activity.done:
                activity.done = True
                self._activities.remove(activity)
                self.put(execution, activity.run, message)

        self.worker.spawn(activity.make(), done)

    def _chance(self, execution: Execution, draws: int) -> float:
        """The same for a workflow task that is done again, another after a reset."""
        return Random(f"{self.seed}/{execution.id}/{execution.run}/{draws}").random()
