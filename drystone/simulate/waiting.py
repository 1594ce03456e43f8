"""Tasks that wait, by demand, and which of them are worth asking the engine about now.

Room comes back only where a task ends. So a demand that no machine could take is asked about again
only once one has ended, and then for no more tasks than those machines have room for: the answer is
the same as if all were asked about. Decides no placement.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from drystone.simulate.accounts import Accounts
from drystone.simulate.records import NO_RULES, Demand, TaskRow


@dataclass(slots=True)
class _Line:
    """The tasks of one demand, the first come first."""

    demand: Demand
    tasks: deque[int] = field(default_factory=deque)
    refused_at: int | None = None
    """How many endings there had been when no machine had room for it; None = not known yet."""
    refused_after: int = 0
    """What `Waiting._news` was then."""


class Waiting:
    """The queue. Tasks are numbers into the stream."""

    def __init__(self, stream: Sequence[TaskRow], accounts: Accounts) -> None:
        self._stream = stream
        self._accounts = accounts
        self._lines: dict[int, _Line] = {}
        self._ended: list[int] = []
        """Machines on which a task has ended, in order, while anything waited."""
        self._waiting = 0
        self._apart = any(row.demand.rules != NO_RULES for row in stream)
        """Tasks may keep others off machines on which they do not run, or let them in there."""
        self._news = 0
        """Another number whenever a task has been placed or has ended."""

    def __len__(self) -> int:
        return self._waiting

    def add(self, task: int) -> None:
        """It has arrived."""
        demand = self._stream[task].demand
        line = self._lines.setdefault(id(demand), _Line(demand))
        line.tasks.append(task)
        self._waiting += 1

    def room_came_back(self, machine: int) -> None:
        """A task has ended there."""
        self._news += 1
        if self._waiting:
            self._ended.append(machine)

    def worth_asking(self, most: int) -> list[int]:
        """At most so many tasks that may find room, the more important and longer waiting first."""
        found: list[int] = []
        for line in self._lines.values():
            chances = self._chances(line)
            if not chances:
                line.refused_at = len(self._ended)
            found.extend(islice(line.tasks, min(most, chances)))
        self._forget()
        found.sort(key=self._rank)
        return found[:most]

    def answered(
        self, asked: Sequence[int], placed: Iterable[int], refused: Iterable[int], *, cut: bool
    ) -> None:
        """What became of those asked about; refused are those for whom no machine had room, `cut`
        says that there were more worth asking about."""
        gone = set(placed)
        self._news += len(gone)
        full = {id(self._stream[task].demand) for task in refused}
        for demand in {id(self._stream[task].demand) for task in asked}:
            line = self._lines[demand]
            if demand in full or (line.refused_at is not None and not cut):
                line.refused_at = len(self._ended)
                line.refused_after = self._news
            self._take_out(line, gone)

    def dismiss(self, demand: Demand) -> list[int]:
        """All tasks of a demand that need wait no longer, for good."""
        line = self._lines.pop(id(demand))
        self._waiting -= len(line.tasks)
        return list(line.tasks)

    def all(self) -> list[int]:
        """Everybody, in the order of the stream."""
        return sorted(task for line in self._lines.values() for task in line.tasks)

    def _rank(self, task: int) -> tuple[int, int, int]:
        row = self._stream[task]
        return (int(row.demand.band), row.submit_ms or 0, task)

    def _chances(self, line: _Line) -> int:
        """How many of the line may find room, at most."""
        if line.refused_at is None:
            return len(line.tasks)
        if self._apart:
            return len(line.tasks) if line.refused_after != self._news else 0
        chances = 0
        for machine in set(self._ended[line.refused_at :]):
            chances += self._accounts.room_for(machine, line.demand)
            if chances >= len(line.tasks):
                return len(line.tasks)
        return chances

    def _take_out(self, line: _Line, gone: set[int]) -> None:
        before = len(line.tasks)
        while line.tasks and line.tasks[0] in gone:
            line.tasks.popleft()
        if any(task in gone for task in islice(line.tasks, len(gone))):
            line.tasks = deque(task for task in line.tasks if task not in gone)
        self._waiting -= before - len(line.tasks)
        if not line.tasks:
            del self._lines[id(line.demand)]

    def _forget(self) -> None:
        """Endings that every line has taken into account need not be kept."""
        marks = [line.refused_at for line in self._lines.values() if line.refused_at is not None]
        seen = min(marks, default=len(self._ended))
        if seen:
            del self._ended[:seen]
            for line in self._lines.values():
                if line.refused_at is not None:
                    line.refused_at -= seen
