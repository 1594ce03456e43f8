"""Attempts as processes of this machine: started, watched, signalled and reaped with their trees.

Each tree has a goal (terminate, kill, freeze, ...), and a sweep over /proc works on all goals at
once, again and again until they are met. Decides nothing about when or why.
"""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from domain.attempt import Usage
from domain.protocol import StartAttempt
from domain.reasons import Reason
from domain.task import OnLoss
from keeper import census
from keeper.attempts import Cleared, Event, Exit, Exited, Launched, LaunchFailed
from keeper.census import Process, Root
from keeper.children import adopted
from keeper.journal import Journal
from keeper.output import Output
from keeper.spawn import Streams, Surroundings, attempt_folder, spawn
from runtime.telemetry import logger

READ_BYTES = 65_536
READS_PER_WAKE_MAX = 4
READS_AT_EXIT_MAX = 64
SWEEP_S_MIN = 0.005
SWEEP_S_MAX = 0.25
SWEEP_BACKOFF = 1.6
LOOK_ROUND_S = 2.0
"""How often orphans are reaped and memory peaks are sampled while attempts run."""
ORPHAN_PASSES_MAX = 100
CALM_SWEEPS = 2
"""Looks in a row that must find nothing to do: one look may miss a process that is being born."""


class _Goal(Enum):
    NONE = auto()
    TERMINATE = auto()
    KILL = auto()
    FREEZE = auto()
    THAW = auto()
    LEAVE = auto()
    """The main child has exited: watch until the rest has gone, too."""


@dataclass(slots=True)
class _Tree:
    """An attempt's main child and what is known of the rest."""

    attempt: str
    child: subprocess.Popen[bytes]
    root: Root
    exit_fd: int
    pipes: dict[int, Output]
    floor_kib: int
    """A child begins with its parent's memory peak: one not above it says nothing."""
    sampled_kib: int = 0
    goal: _Goal = _Goal.NONE
    exited: bool = False
    calm: int = 0
    told: bool = False
    """SIGTERM was sent."""


class ProcessDriver:
    """The process driver of one keeper; runs in one event loop."""

    def __init__(
        self,
        around: Surroundings,
        journal: Journal,
        tell: Callable[[Event], None],
        *,
        output_bytes_max: int,
        relatives: Callable[[], set[int]],
    ) -> None:
        """`relatives`: children of ours that belong to no attempt (the warden)."""
        self._around = around
        self._journal = journal
        self._tell = tell
        self._output_bytes_max = output_bytes_max
        self._relatives = relatives
        self._loop = asyncio.get_running_loop()
        self._trees: dict[str, _Tree] = {}
        self._known: dict[tuple[int, int], Root] = {}
        """The processes that the last sweep found, by bearer."""
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._sweeping: asyncio.TimerHandle | None = None
        self._sweep_s = SWEEP_S_MIN
        self._round = self._loop.call_later(LOOK_ROUND_S, self._look_round)
        self._files_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Three descriptors per attempt; attempts themselves get the limit we were given.
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._files_limit[1], self._files_limit[1]))

    # --- what the keeper orders -----------------------------------------------------------------

    def launch(self, start: StartAttempt) -> Launched | LaunchFailed:
        """Start the command; its output flows into the attempt's folder."""
        ends: list[int] = []
        try:
            ends += os.pipe()
            ends += os.pipe()
            return self._launch(start, *ends)
        except OSError as error:
            # Out of descriptors, most likely: the attempt fails, and not its keeper.
            for end in ends:
                with contextlib.suppress(OSError):
                    os.close(end)
            return LaunchFailed(start.attempt, Reason.CANNOT_START, str(error))

    def _launch(
        self, start: StartAttempt, out: int, out_end: int, err: int, err_end: int
    ) -> Launched | LaunchFailed:
        floor_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        child = spawn(start, self._around, Streams(self._nothing, out_end, err_end))
        if isinstance(child, LaunchFailed):
            for end in (out, out_end, err, err_end):
                os.close(end)
            return child
        try:
            exit_fd = os.pidfd_open(child.pid)
        except OSError:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        os.close(out_end)
        os.close(err_end)
        with contextlib.suppress(OSError):
            resource.prlimit(child.pid, resource.RLIMIT_NOFILE, self._files_limit)
        folder = attempt_folder(self._around.folder, start.attempt)
        pipes = {
            out: Output(folder, "stdout", self._output_bytes_max),
            err: Output(folder, "stderr", self._output_bytes_max),
        }
        root = Root(child.pid, start.attempt, start.spec.on_loss is OnLoss.WAIT)
        tree = _Tree(start.attempt, child, root, exit_fd, pipes, floor_kib=floor_kib)
        self._trees[start.attempt] = tree
        self._watch(tree)
        return Launched(start.attempt)

    def look(self, attempt: str) -> None:
        """Take note of an exit before an order overtakes it."""
        tree = self._trees.get(attempt)
        if tree is not None and not tree.exited:
            self._main_exited(tree)

    def terminate(self, attempt: str) -> None:
        """SIGTERM to the tree."""
        self._aim(attempt, _Goal.TERMINATE)

    def kill(self, attempt: str) -> None:
        """SIGKILL to the tree, frozen or not."""
        self._aim(attempt, _Goal.KILL)

    def freeze(self, attempt: str) -> None:
        """SIGSTOP to the tree."""
        self._aim(attempt, _Goal.FREEZE)

    def thaw(self, attempt: str) -> None:
        """SIGCONT to the tree."""
        self._aim(attempt, _Goal.THAW)

    def close(self) -> None:
        """Let go of every descriptor; what still runs is the warden's."""
        self._round.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for tree in self._trees.values():
            self._let_go(tree)
        os.close(self._nothing)

    # --- what happens to the children -------------------------------------------------------------

    def _watch(self, tree: _Tree) -> None:
        process = census.read_process(tree.root.pid)
        if process is not None:
            root = tree.root
            try:
                self._journal.started(tree.attempt, root.pid, process.born, waits=root.waits)
            except OSError as error:
                # Its mark still finds it.
                logger().warning("pid not journalled", attempt=tree.attempt, error=str(error))
        for pipe in tree.pipes:
            os.set_blocking(pipe, False)
            self._loop.add_reader(pipe, self._readable, tree, pipe)
        self._loop.add_reader(tree.exit_fd, self._main_exited, tree)

    def _readable(self, tree: _Tree, pipe: int) -> None:
        self._drain(tree, pipe, READS_PER_WAKE_MAX)

    def _drain(self, tree: _Tree, pipe: int, reads: int) -> None:
        output = tree.pipes[pipe]
        for _ in range(reads):
            try:
                data = os.read(pipe, READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._close_pipe(tree, pipe)
                return
            try:
                output.write(data)
            except OSError as error:
                # A full disk must not hold up the attempt: its output is lost, and we say so.
                logger().warning("output lost", attempt=tree.attempt, error=str(error))
            if len(data) < READ_BYTES:
                return

    def _close_pipe(self, tree: _Tree, pipe: int) -> None:
        self._loop.remove_reader(pipe)
        tree.pipes.pop(pipe).close()
        os.close(pipe)

    def _main_exited(self, tree: _Tree) -> None:
        pid, status, used = os.wait4(tree.root.pid, os.WNOHANG)
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        # Popen must not wait for a pid that may be somebody else's by then.
        tree.child.returncode = code
        tree.exited = True
        self._loop.remove_reader(tree.exit_fd)
        os.close(tree.exit_fd)
        for pipe in list(tree.pipes):
            self._drain(tree, pipe, READS_AT_EXIT_MAX)
        peak_kib = used.ru_maxrss if used.ru_maxrss > tree.floor_kib else tree.sampled_kib
        usage = Usage(
            cpu_ms=round((used.ru_utime + used.ru_stime) * 1_000),
            memory_peak_mib=-(-peak_kib // 1_024),
        )
        seen = Exit(exit_code=128 - code if code < 0 else code, by_signal=code < 0, usage=usage)
        nothing_left = self._nothing_left(tree)
        if tree.goal not in (_Goal.TERMINATE, _Goal.KILL):
            tree.goal = _Goal.LEAVE
        self._tell(Exited(tree.attempt, seen))
        if nothing_left:
            self._cleared(tree)
        else:
            tree.calm = 0
            self._sweep_soon()

    def _nothing_left(self, tree: _Tree) -> bool:
        """True when it is sure, at little cost, that the exited child left no process behind."""
        owners = self._owners_of_orphans()
        others = self._trees.keys() - {tree.attempt}
        return owners is not None and others.issuperset(owners.values())

    def _owners_of_orphans(self) -> dict[int, str] | None:
        """The attempt of each adopted child, "" where it bears no mark or has just ended.

        None: the kernel does not tell.
        """
        orphans = adopted(self._own_children())
        if orphans is None:
            return None
        prefix = f"{self._around.keeper_mark}:"
        owners = dict.fromkeys(orphans, "")
        for pid in orphans:
            mark = census.read_mark(pid) or ""
            if mark.startswith(prefix):
                owners[pid] = mark[len(prefix) :].removesuffix(census.WAIT_FLAG)
        return owners

    def _own_children(self) -> set[int]:
        mains = {tree.root.pid for tree in self._trees.values() if not tree.exited}
        return mains | self._relatives()

    def _cleared(self, tree: _Tree) -> None:
        for pipe in list(tree.pipes):
            self._drain(tree, pipe, READS_AT_EXIT_MAX)
        self._let_go(tree)
        del self._trees[tree.attempt]
        self._tell(Cleared(tree.attempt))

    def _let_go(self, tree: _Tree) -> None:
        for pipe in list(tree.pipes):
            self._close_pipe(tree, pipe)
        if not tree.exited:
            self._loop.remove_reader(tree.exit_fd)
            os.close(tree.exit_fd)
            tree.child.returncode = 0

    # --- the sweep --------------------------------------------------------------------------------

    def _aim(self, attempt: str, goal: _Goal) -> None:
        """Leave the signals to the sweep, which looks first: a child without a mark can no longer
        be told from a stranger once its parents are dead."""
        tree = self._trees.get(attempt)
        if tree is None or (tree.exited and goal is not _Goal.KILL):
            return
        tree.goal = goal
        tree.calm = 0
        self._sweep_soon()

    def _sweep_soon(self) -> None:
        self._sweep_s = SWEEP_S_MIN
        self._sweep_after(0.0)

    def _sweep_after(self, delay_s: float) -> None:
        if self._sweeping is not None:
            # One that comes sooner stays, or a burst of orders would put it off for ever.
            if self._sweeping.when() <= self._loop.time() + delay_s:
                return
            self._sweeping.cancel()
        self._sweeping = self._loop.call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        if not self._any_goal():
            return
        there = census.processes()
        prefix = f"{self._around.keeper_mark}:"
        # The pid of a main child that was reaped may be a stranger's by now.
        trees = self._trees.values()
        roots = [tree.root for tree in trees if not (tree.exited and tree.root.pid in there)]
        owners = census.trees(there, prefix, roots, self._known)
        self._known = {there[pid].bearer: owner for pid, owner in owners.items()}
        belonging: dict[str, list[Process]] = {}
        for pid, owner in owners.items():
            belonging.setdefault(owner.attempt, []).append(there[pid])
        for attempt in belonging.keys() - self._trees.keys():
            # Born while its attempt was being cleared: it belongs to nothing any more.
            self._signal_all(belonging[attempt], signal.SIGKILL)
        for tree in list(self._trees.values()):
            self._work_on(tree, belonging.get(tree.attempt, []))
        if self._any_goal():
            self._sweep_s = min(SWEEP_S_MAX, self._sweep_s * SWEEP_BACKOFF)
            self._sweep_after(self._sweep_s)

    def _any_goal(self) -> bool:
        return any(tree.goal is not _Goal.NONE for tree in self._trees.values())

    def _work_on(self, tree: _Tree, there: list[Process]) -> None:
        match tree.goal:
            case _Goal.NONE:
                return
            case _Goal.TERMINATE:
                # Once: what is born later may be the cleaning up that the grace is for.
                if not tree.told:
                    self._signal_all(there, signal.SIGTERM)
                tree.told = True
            case _Goal.KILL:
                self._signal_all(there, signal.SIGKILL)
            case _Goal.FREEZE:
                awake = [process for process in there if not process.stands_still]
                self._signal_all(awake, signal.SIGSTOP)
                tree.calm = 0 if awake else tree.calm + 1
                if tree.calm >= CALM_SWEEPS:
                    tree.goal = _Goal.NONE
            case _Goal.THAW:
                self._signal_all(there, signal.SIGCONT)
                tree.goal = _Goal.NONE
            case _Goal.LEAVE:
                pass
        if tree.exited:
            tree.calm = 0 if self._orphans_left(tree) or there else tree.calm + 1
            if tree.calm >= CALM_SWEEPS and not self._strays_of_the_last(tree):
                self._cleared(tree)

    def _orphans_left(self, tree: _Tree) -> bool:
        """What forks and exits faster than a census looks is caught here: it falls to us each time.

        Its ancestor may have been killed a moment ago, so the mark alone tells.
        """
        found = False
        for _ in range(ORPHAN_PASSES_MAX):
            owners = self._owners_of_orphans() or {}
            own = [pid for pid, owner in owners.items() if owner == tree.attempt]
            # One that ended as we looked may have left a child that we have not seen.
            if not own and all(owner or census.lives(pid) for pid, owner in owners.items()):
                return found
            found = True
            if tree.goal is not _Goal.KILL:
                return found
            for pid in own:
                census.send(pid, signal.SIGKILL)
        return found

    def _signal_all(self, processes: list[Process], number: signal.Signals) -> None:
        for process in processes:
            census.send(process.pid, number)

    def _strays_of_the_last(self, tree: _Tree) -> bool:
        """Kill orphans that bear no mark: told apart only when no other attempt runs."""
        if self._trees.keys() != {tree.attempt}:
            return False
        strays = adopted(self._own_children()) or set()
        for pid in strays:
            census.send(pid, signal.SIGKILL)
        return bool(strays)

    def _look_round(self) -> None:
        self._round = self._loop.call_later(LOOK_ROUND_S, self._look_round)
        if not self._trees:
            return
        adopted(self._own_children())
        for tree in self._trees.values():
            if not tree.exited:
                tree.sampled_kib = max(tree.sampled_kib, census.peak_kib(tree.root.pid))
