"""A stream of tasks on a fleet: a packing run, or arrivals and endings on a virtual clock.

Asks the engine, carries out its answers, and keeps what happened. Knows no file and no terminal.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from domain.reasons import Reason
from drystone.simulate.accounts import Accounts
from drystone.simulate.engine import Engine, Placed, Round
from drystone.simulate.history import History, Look
from drystone.simulate.records import Demand, Outcome, Placement, TaskRow
from drystone.simulate.stranding import Typical, stranded
from drystone.simulate.waiting import Waiting

LOOKS = 24
"""Closer looks at what is stranded, spread over a run."""

Tell = Callable[[int], None]
"""Called with how many more tasks have been dealt with."""


@dataclass(frozen=True, slots=True)
class Result:
    """What happened: one line per attempt, or per task without one, and the books at the end."""

    placements: list[Placement]
    """In the order of the stream."""
    history: History
    waited_ms: list[int] | None
    """Of every task that was placed, in the order of placing; None in a packing run."""


class Replay:
    """One run of a stream on a fleet."""

    def __init__(
        self, engine: Engine, accounts: Accounts, stream: Sequence[TaskRow], batch: int, tell: Tell
    ) -> None:
        """`batch` is the most tasks of one round."""
        self._engine = engine
        self._accounts = accounts
        self._stream = stream
        self._batch = batch
        self._tell = tell
        self._typical = Typical.of(stream)
        self._history = History(accounts)
        self._lines: list[Placement | None] = [None] * len(stream)
        self._waited_ms: list[int] = []
        self._impossible: dict[int, Reason | None] = {}
        self._look_at = 0

    def run(self) -> Result:
        """To the end of the stream and of everything that ends."""
        timed = bool(self._stream) and self._stream[0].submit_ms is not None
        if timed:
            self._clock()
        else:
            self._pack()
        lines = [line for line in self._lines if line is not None]
        assert len(lines) == len(self._stream), "every task has a line"
        return Result(lines, self._history, self._waited_ms if timed else None)

    # --- one after another, never leaving ---

    def _pack(self) -> None:
        """Batches in file order. What does not fit is skipped, and so is whatever asks for the same
        after it: in a packing run room never grows."""
        refused: dict[int, Reason] = {}
        step = -(-len(self._stream) // LOOKS)
        for batch in _batches(self._stream, self._batch):
            asked = [task for task in batch if id(self._stream[task].demand) not in refused]
            done = self._engine.place(asked, batch.start) if asked else Round([], {})
            for task, reason in done.refused.items():
                refused.setdefault(id(self._stream[task].demand), reason)
            placed = {one.task: one for one in done.placed}
            for task in batch:
                if task in placed:
                    self._place(placed[task], now=0)
                else:
                    self._leave_out(task, refused[id(self._stream[task].demand)])
                self._history.note(task + 1, 0, last=task + 1 == len(self._stream))
            self._look(batch.stop, step)
            self._tell(len(batch))
        self._look(len(self._stream), 0)

    # --- on the virtual clock ---

    def _clock(self) -> None:
        waiting = Waiting(self._stream, self._accounts)
        order = sorted(range(len(self._stream)), key=lambda task: (self._arrival(task), task))
        arrivals = _Arrivals(order, [self._arrival(task) for task in order])
        endings: list[tuple[int, int, Placed]] = []
        step = (arrivals.last_ms - arrivals.first_ms) // LOOKS + 1
        self._look_at = arrivals.first_ms + step
        refused: dict[int, Reason] = {}
        while (now := _earliest(arrivals.next_ms, endings)) is not None:
            self._history.pass_to(now)
            self._look(now, step)
            self._end(endings, now, waiting)
            for task in arrivals.take(now):
                self._arrive(task, waiting)
            while self._ask(waiting, endings, refused, now):
                self._end(endings, now, waiting)
            over = not endings and arrivals.next_ms is None
            self._history.note(now, len(waiting), last=over)
        for task in waiting.all():
            self._leave_out(task, refused[id(self._stream[task].demand)])
            self._tell(1)

    def _arrival(self, task: int) -> int:
        submit_ms = self._stream[task].submit_ms
        assert submit_ms is not None
        return submit_ms

    def _arrive(self, task: int, waiting: Waiting) -> None:
        """Into the queue, unless the like of it has proved to be impossible."""
        reason = self._impossible.get(id(self._stream[task].demand))
        if reason is None:
            waiting.add(task)
        else:
            self._leave_out(task, reason)
            self._tell(1)

    def _end(self, endings: list[tuple[int, int, Placed]], now: int, waiting: Waiting) -> None:
        while endings and endings[0][0] <= now:
            _, _, placed = heapq.heappop(endings)
            self._engine.leave(placed)
            demand = self._stream[placed.task].demand
            self._accounts.give_back(placed.machine, demand, placed.devices)
            waiting.room_came_back(placed.machine)

    def _ask(
        self,
        waiting: Waiting,
        endings: list[tuple[int, int, Placed]],
        refused: dict[int, Reason],
        now: int,
    ) -> bool:
        """One round, if anything is worth it; True when there must be another at this moment."""
        asked = waiting.worth_asking(self._batch)
        if not asked:
            return False
        cut = len(asked) == self._batch
        done = self._engine.place(asked, now)
        for one in done.placed:
            self._place(one, now)
            self._waited_ms.append(now - self._arrival(one.task))
            duration_ms = self._stream[one.task].duration_ms
            if duration_ms is not None:
                heapq.heappush(endings, (now + duration_ms, one.task, one))
        waiting.answered(asked, [one.task for one in done.placed], done.refused, cut=cut)
        for task, reason in done.refused.items():
            demand = self._stream[task].demand
            refused[id(demand)] = reason
            self._dismiss_if_impossible(demand, waiting)
        self._tell(len(done.placed))
        return cut or bool(endings and endings[0][0] <= now)

    def _dismiss_if_impossible(self, demand: Demand, waiting: Waiting) -> None:
        if id(demand) in self._impossible:
            return
        reason = self._never(demand)
        if reason is not None:
            for task in waiting.dismiss(demand):
                self._leave_out(task, reason)
                self._tell(1)

    # --- what both do ---

    def _place(self, one: Placed, now: int) -> None:
        row = self._stream[one.task]
        self._accounts.take(one.machine, row.demand, one.devices)
        ends_ms = None
        if row.submit_ms is not None and row.duration_ms is not None:
            ends_ms = now + row.duration_ms
        self._lines[one.task] = Placement(
            task_id=row.id,
            attempt=1,
            machine_id=self._engine.machine_id(one.machine),
            gpu_devices=one.devices,
            placed_ms=now,
            ended_ms=ends_ms,
            outcome=Outcome.RUNNING if ends_ms is None else Outcome.SUCCEEDED,
        )

    def _leave_out(self, task: int, reason: Reason) -> None:
        never = self._never(self._stream[task].demand)
        self._lines[task] = Placement(
            task_id=self._stream[task].id,
            attempt=0,
            outcome=Outcome.UNPLACED if never is None else Outcome.IMPOSSIBLE,
            reason=reason if never is None else never,
        )

    def _never(self, demand: Demand) -> Reason | None:
        """Why no machine could ever hold it; asked once of each."""
        if id(demand) not in self._impossible:
            self._impossible[id(demand)] = self._engine.impossible(demand)
        return self._impossible[id(demand)]

    def _look(self, at: int, step: int) -> None:
        if at >= self._look_at:
            self._look_at = at + step
            found = stranded(self._engine, self._accounts, self._typical)
            self._history.looks.append(Look(at, found))


class _Arrivals:
    """The stream in the order of its times."""

    def __init__(self, order: list[int], times_ms: list[int]) -> None:
        self._order, self._times_ms = order, times_ms
        self._at = 0
        self.first_ms, self.last_ms = times_ms[0], times_ms[-1]

    @property
    def next_ms(self) -> int | None:
        """When the next task comes; None after the last."""
        return self._times_ms[self._at] if self._at < len(self._order) else None

    def take(self, now: int) -> Iterator[int]:
        """Those that have come by now, once each."""
        while self._at < len(self._order) and self._times_ms[self._at] <= now:
            self._at += 1
            yield self._order[self._at - 1]


def _earliest(arrival_ms: int | None, endings: list[tuple[int, int, Placed]]) -> int | None:
    if not endings:
        return arrival_ms
    return endings[0][0] if arrival_ms is None else min(arrival_ms, endings[0][0])


def _batches(stream: Sequence[TaskRow], most: int) -> Iterator[range]:
    """Runs of tasks of one priority: a round would put the more important ones first, and in a
    packing run whoever stands first in the file comes first."""
    first = 0
    while first < len(stream):
        band = stream[first].demand.band
        run = islice(stream, first, first + most)
        length = next((n for n, row in enumerate(run) if row.demand.band is not band), most)
        last = min(first + length, len(stream))
        yield range(first, last)
        first = last
