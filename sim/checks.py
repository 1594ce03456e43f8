"""What must hold after every event, and what must have come true once everything has healed."""

from domain.attempt import Phase
from domain.reasons import Reason
from domain.task import OnLoss
from sim import rows
from sim.rows import TaskStanding
from sim.trees import exited_with
from sim.world import World
from store.audit import audit
from store.session import reading

WRITES_PER_AUDIT = 25


class Violation(Exception):
    """An invariant does not hold; the text says which."""


class Safety:
    """After each event: nothing runs twice or beyond its room, and the ledger adds up."""

    def __init__(self, world: World, writes_per_audit: int = WRITES_PER_AUDIT) -> None:
        self._world = world
        self._every = writes_per_audit
        self._audited = 0
        self._launched = 0
        self._seen: set[str] = set()
        self._outcomes: dict[str, TaskStanding] = {}

    def __call__(self) -> None:
        """Look."""
        if self._world.truth.wrongs:
            raise Violation("; ".join(self._world.truth.wrongs))
        self._launches()
        writes = self._world.scheduler.writes
        if writes - self._audited >= self._every:
            self._audited = writes
            self.audit()

    def _launches(self) -> None:
        """Nothing starts for which no room is held, unless it may run twice."""
        launched = self._world.truth.launched
        if len(launched) == self._launched:
            return
        self._launched = len(launched)
        with reading(self._world.engine) as connection:
            held = set(rows.held(connection))
        for tree in self._world.truth.trees.values():
            fresh = tree.attempt not in self._seen
            twice = tree.spec.on_loss is OnLoss.REPLACE_AT_ONCE
            if fresh and not twice and tree.attempt not in held:
                raise Violation(f"{tree.attempt} was launched, and its claim is released")
        self._seen |= self._world.truth.trees.keys()

    def audit(self) -> None:
        """The ledger's sums, its outcomes, and each agent's room."""
        with reading(self._world.engine) as connection:
            found = audit(connection)
            standing = rows.tasks(connection)
        if found:
            raise Violation("; ".join(map(str, found)))
        for agent in self._world.agents.values():
            for machine in agent.state.machines.values():
                sized = machine.used.fits(machine.report.capacity)
                if not sized:
                    raise Violation(f"{machine.report.name}: the agent admitted {machine.used}")
        for task in standing.values():
            before = self._outcomes.get(task.key)
            if before is not None and before != task:
                raise Violation(f"{task.key} had ended as {before}, and is now {task}")
            if task.outcome is not None:
                self._ended(task)
                self._outcomes[task.key] = task

    def _ended(self, task: TaskStanding) -> None:
        """A success is an exit with 0 of the attempt that is named."""
        outcome = task.outcome
        assert outcome is not None
        if outcome.phase is not Phase.SUCCEEDED:
            return
        code = exited_with(self._world.truth, task.key, outcome.number)
        if code != 0:
            raise Violation(f"{task.key} succeeded by #{outcome.number}, which exited with {code}")
        spec = self._world.spec(task.key)
        if outcome.number != task.number and not spec.accept_late_success:
            raise Violation(f"{task.key} succeeded by the late #{outcome.number}")


def unfinished(world: World) -> list[str]:
    """What is still not as it must be in the end; empty when all is done."""
    with reading(world.engine) as connection:
        standing = rows.tasks(connection)
        held = rows.held(connection)
        charged = rows.charged(connection)
    wrong = [f"{a} holds a claim" for a in held]
    wrong += [f"team {team} is charged" for team in charged]
    wrong += [f"{attempt} runs" for attempt in sorted(world.truth.trees)]
    for arrival in world.workload.arrivals:
        task = standing.get(arrival.spec.key)
        if task is None:
            if arrival.spec.key not in world.gone:
                wrong.append(f"{arrival.spec.key} has no row")
        elif task.outcome is None:
            wrong.append(f"{task.key} is {task.phase}")
    for execution in world.temporal.executions.values():
        if execution.kind.name == "task" and execution.running:
            wrong.append(f"{execution.id} runs")
    return wrong


def judge(world: World) -> None:
    """Each outcome against what was asked and what was done to the task."""
    with reading(world.engine) as connection:
        standing = rows.tasks(connection)
        failed = rows.failures(connection)
    for key, task in standing.items():
        outcome = task.outcome
        assert outcome is not None, task
        if outcome.phase is Phase.CANCELLED:
            _cancelled(world, key, outcome.reason)
        if outcome.phase is Phase.EXPIRED and world.spec(key).queue_timeout_s is None:
            raise Violation(f"{key} expired without a queue timeout")
        _budget(world, key, failed[key])


def _cancelled(world: World, key: str, reason: Reason | None) -> None:
    if reason is Reason.WORKFLOW_GONE and key not in world.gone:
        raise Violation(f"{key} ended as {reason}, and its workflow was never terminated")
    if reason is not Reason.WORKFLOW_GONE and key not in world.cancelled:
        raise Violation(f"{key} ended as cancelled, and nobody had asked for it")


def _budget(world: World, key: str, failures: int) -> None:
    """No more failures than the budget allows, and one: also of those that were reset."""
    budget = world.spec(key).retries.failures
    if budget != "unlimited" and failures > budget + 1:
        raise Violation(f"{key} failed {failures} times with a budget of {budget}")
