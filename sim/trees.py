"""What really runs: process trees of attempts, and the truth by which everything else is judged.

No process of the system reads this; it is what drivers act on and what checks look at.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from domain.ids import attempt_id, split_attempt_id
from domain.task import OnLoss, TaskSpec
from sim.clock import MS, Clock
from sim.trace import Trace


@dataclass
class Tree:
    """The processes of one attempt on one machine."""

    attempt: str
    spec: TaskSpec
    machine: str
    left_us: int
    """How long it still works by itself."""
    exit_code: int
    on_exit: Callable[[int, bool], None]
    """Called with the exit code, and whether it was killed."""
    frozen: bool = False
    since_us: int = 0
    turn: int = 0
    """Rises whenever the plan of its end changes."""


@dataclass
class Plan:
    """How one attempt behaves."""

    duration_ms: int
    exit_code: int
    stop_ms: int
    """How long it takes to heed the stop signal; at least the grace: it never does."""
    stop_code: int


@dataclass
class Truth:
    """Every tree of the world, and what every attempt did in its time."""

    clock: Clock
    trace: Trace
    plan: Callable[[str, int], Plan]
    trees: dict[str, Tree] = field(default_factory=dict)
    launched: set[str] = field(default_factory=set)
    exits: dict[str, int] = field(default_factory=dict)
    """Exit codes of the attempts that ended by themselves."""
    wrongs: list[str] = field(default_factory=list)
    """What must never happen, and did."""

    def launch(
        self, attempt: str, spec: TaskSpec, machine: str, on_exit: Callable[[int, bool], None]
    ) -> None:
        """Its main child begins."""
        key, number = split_attempt_id(attempt)
        if attempt in self.launched:
            self.wrongs.append(f"{attempt} was launched twice")
        self.launched.add(attempt)
        plan = self.plan(key, number)
        tree = Tree(attempt, spec, machine, plan.duration_ms * MS, plan.exit_code, on_exit)
        tree.since_us = self.clock.now_us
        self.trees[attempt] = tree
        self.trace.line(machine, "launch", attempt)
        self._look(key)
        self._work(tree)

    def terminate(self, attempt: str) -> None:
        """The stop signal: it ends after its own while, if it heeds it at all."""
        tree = self.trees.get(attempt)
        if tree is None:
            return
        key, number = split_attempt_id(attempt)
        plan = self.plan(key, number)
        self._pause(tree)
        if plan.stop_ms * MS < tree.left_us:
            tree.left_us, tree.exit_code = plan.stop_ms * MS, plan.stop_code
        if not tree.frozen:
            self._work(tree)

    def kill(self, attempt: str) -> None:
        """Nothing of it is left."""
        tree = self.trees.pop(attempt, None)
        if tree is not None:
            tree.turn += 1
            self.trace.line(tree.machine, "killed", attempt)
            tree.on_exit(137, True)

    def freeze(self, attempt: str) -> None:
        """It stands still."""
        tree = self.trees.get(attempt)
        if tree is not None and not tree.frozen:
            self._pause(tree)
            tree.frozen = True
            self.trace.line(tree.machine, "frozen", attempt)

    def thaw(self, attempt: str) -> None:
        """It goes on."""
        tree = self.trees.get(attempt)
        if tree is not None and tree.frozen:
            tree.frozen = False
            self.trace.line(tree.machine, "thawed", attempt)
            self._look(split_attempt_id(attempt)[0])
            self._work(tree)

    def able(self, key: str) -> list[str]:
        """The attempts of a task that could do something now."""
        return [
            tree.attempt for tree in self.trees.values() if tree.spec.key == key and not tree.frozen
        ]

    def _look(self, key: str) -> None:
        """At most one attempt of a task is able to run, whenever that number rises."""
        able = self.able(key)
        if len(able) < 2:
            return
        spec = self.trees[able[0]].spec
        if spec.on_loss is not OnLoss.REPLACE_AT_ONCE:
            self.wrongs.append(f"{' and '.join(sorted(able))} are able to run at once")

    def _work(self, tree: Tree) -> None:
        tree.since_us = self.clock.now_us
        tree.turn += 1
        turn = tree.turn

        def over() -> None:
            if tree.turn == turn and self.trees.get(tree.attempt) is tree:
                del self.trees[tree.attempt]
                self.exits[tree.attempt] = tree.exit_code
                self.trace.line(tree.machine, "exit", f"{tree.attempt} code {tree.exit_code}")
                tree.on_exit(tree.exit_code, False)

        self.clock.after(tree.left_us, over)

    def _pause(self, tree: Tree) -> None:
        if not tree.frozen:
            tree.left_us = max(0, tree.left_us - (self.clock.now_us - tree.since_us))
            tree.since_us = self.clock.now_us
            tree.turn += 1


def exited_with(truth: Truth, key: str, number: int) -> int | None:
    """The exit code of an attempt that ended by itself."""
    return truth.exits.get(attempt_id(key, number))
