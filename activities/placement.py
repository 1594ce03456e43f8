"""Rounds of a partition: paced, heartbeating, until nothing is left to do. Decides no placement."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine
from temporalio import activity

from activities.gathering import gather_s
from activities.notices import Notices
from activities.rounds import Committed, PartitionRounds, Solved, batches
from activities.writer import LedgerWriter
from domain.claims import Enqueue, LedgerOperation, Requeue, Settle
from domain.fleet import Proposal
from domain.ids import TaskKey
from domain.partition import GoneTasks, PlaceRounds, RoundsDone
from domain.protocol import Expire
from runtime.settings import PlacementSettings
from store.bell import bell_busy
from store.claims import Claimed
from store.losses import gone
from workflows.options import ROUNDS_S_MAX
from workflows.ports import PlacementPort

HEARTBEAT_S = 0.5
LINGER_S = 2.0
"""After the last work an activity stays awake for so long: under load tasks come to it without a
signal, a workflow task and an activity for each."""
LOOK_S = 0.25
"""While it lingers, it sees so soon what another process has committed."""
SAY_S = 1.0
"""How often it says in the ledger that it is at work; well within what counts as asleep."""
DUTY = 2
"""Long rounds are at least so many times their own length apart."""
GATHER_S_MAX = 0.25
"""Between two rounds that leave nothing waiting."""
TOLD_MAX = 10_000
TOLD_AT_ONCE_MAX = 50


@dataclass(slots=True)
class _Awake:
    """One activity at work."""

    partition: int
    began: float
    worked_at: float
    said_at: float = float("-inf")
    """When it last said in the ledger that it is at work."""
    rounds: int = 0
    placed: int = 0
    conflicts: int = 0

    def done(self, *, more: bool = False, next_due: datetime | None = None) -> RoundsDone:
        """What the activity answers."""
        return RoundsDone(
            rounds=self.rounds,
            placed=self.placed,
            conflicts=self.conflicts,
            more=more,
            next_due=next_due,
        )


class Placement(PlacementPort):
    """One index per partition and process."""

    def __init__(
        self, settings: PlacementSettings, engine: Engine, writer: LedgerWriter, notices: Notices
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._writer = writer
        self._notices = notices
        self._rounds: dict[int, PartitionRounds] = {}
        self._turns: dict[int, asyncio.Lock] = {}
        self._told: dict[str, float] = {}
        self._woken = asyncio.Event()
        self._left_waiting: set[int] = set()
        """Partitions whose last round found no machine for some row."""

    def woken(self, fresh: bool) -> None:
        """Something was committed in this process: whoever lingers looks at once.

        Unless there is no fresh work, and none that waits for room: an idle round would only put
        off the next one, which must keep its distance.
        """
        if fresh or self._left_waiting:
            self._woken.set()

    @activity.defn
    async def place_round(self, ask: PlaceRounds) -> RoundsDone:
        """Rounds while there is work, some waiting for more, then sleep."""
        turn = self._turns.setdefault(ask.partition, asyncio.Lock())
        async with _heartbeating(), turn:
            now = time.monotonic()
            return await self._go_on(_Awake(ask.partition, began=now, worked_at=now))

    @activity.defn
    async def close_gone(self, gone: GoneTasks) -> None:
        """Close the rows of tasks whose workflows do not exist any more."""
        await self._close(gone.keys)

    async def _go_on(self, awake: _Awake) -> RoundsDone:
        while True:
            began = time.monotonic()
            self._woken.clear()
            done = await self._round(awake, may_sleep=began - awake.worked_at >= LINGER_S)
            awake.rounds += 1
            if done.asleep:
                return awake.done(next_due=self._not_at_once(done))
            if began - awake.began >= ROUNDS_S_MAX or activity.is_worker_shutdown():
                return awake.done(more=True)
            await self._pause(began, done)

    async def _round(self, awake: _Awake, *, may_sleep: bool) -> Committed:
        """Load, solve, commit, tell. The wakes are read before anything else is."""
        partition = awake.partition
        rounds = self._rounds.get(partition) or self._rounds.setdefault(
            partition, self._fresh(partition)
        )
        known = await self._say_busy(awake) if self._must_say_so(awake, may_sleep) else None
        now = _now()
        solved = await asyncio.to_thread(rounds.solve, now, _seed(now, partition))
        known = known if may_sleep else None
        done = await self._commit(rounds, solved, known)
        remember = self._left_waiting.add if solved.result.verdicts else self._left_waiting.discard
        remember(partition)
        placed = sum(one.number is not None for one in done.claimed)
        if placed or done.again:
            awake.worked_at = time.monotonic()
        awake.placed += placed
        awake.conflicts += len(done.claimed) - placed
        self._notices.hint(done.clusters)
        await self._tell_expired(solved.expired)
        return done

    async def _commit(
        self, rounds: PartitionRounds, solved: Solved, known: int | None
    ) -> Committed:
        """The ledger has the last word; the index is right again, whatever that was."""
        parts = batches(solved.result.placed)
        claims: list[Claimed] = []
        try:
            if len(parts) == 1:
                done = await self._writer.run(lambda c: rounds.commit(c, solved, known, _now()))
                claims += done.claims
            else:
                failed = await self._claim_apart(rounds, parts, claims)
                if failed is not None:
                    raise failed
                done = await self._writer.run(
                    lambda c: rounds.conclude(c, solved, claims, known, _now())
                )
        finally:
            rounds.settle(solved, claims)
        return done

    async def _claim_apart(
        self, rounds: PartitionRounds, parts: list[list[Proposal]], claims: list[Claimed]
    ) -> BaseException | None:
        """Each part in a transaction of its own: `claims` gets those that stand."""
        begun = [
            self._writer.begin_apart(lambda c, part=part: rounds.claim(c, part, _now()))  # type: ignore[misc]
            for part in parts
        ]
        answers = await asyncio.gather(*map(asyncio.wrap_future, begun), return_exceptions=True)
        claims += [one for one in answers if isinstance(one, Claimed)]
        return next((one for one in answers if isinstance(one, BaseException)), None)

    def _must_say_so(self, awake: _Awake, may_sleep: bool) -> bool:
        """Before sleep, for its count of wakes; otherwise just often enough to be heard."""
        return may_sleep or time.monotonic() - awake.said_at >= SAY_S

    async def _say_busy(self, awake: _Awake) -> int:
        awake.said_at = time.monotonic()
        return await self._writer.run(lambda c: bell_busy(c, awake.partition, _now()))

    async def _pause(self, began: float, done: Committed) -> None:
        """Until the pace allows another round, and then until there is a reason for one."""
        took = time.monotonic() - began
        gather = 0 if done.again else gather_s(len(done.claimed), GATHER_S_MAX)
        apart_s = max(self._settings.round_spacing_ms / 1_000, gather, DUTY * took)
        await asyncio.sleep(apart_s - took)
        if done.again:
            return
        wait_s = LOOK_S
        if done.next_due is not None:
            wait_s = min(wait_s, max(0.0, (done.next_due - _now()).total_seconds()))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), wait_s)

    async def _tell_expired(self, keys: Sequence[str]) -> None:
        """At most once a second each; a task without a workflow is closed here."""
        now, every = time.monotonic(), self._settings.expire_hint_s
        if len(self._told) > TOLD_MAX:
            self._told = {key: at for key, at in self._told.items() if now - at < every}
        due = [key for key in keys if now - self._told.get(key, -every) >= every]
        self._told.update(dict.fromkeys(due, now))
        missing: list[TaskKey] = []
        for first in range(0, len(due), TOLD_AT_ONCE_MAX):
            some = due[first : first + TOLD_AT_ONCE_MAX]
            told = await asyncio.gather(*(self._notices.tell_task(key, Expire()) for key in some))
            missing += [TaskKey(key) for key, there in zip(some, told, strict=True) if not there]
        if missing:
            await self._close(missing)

    async def _close(self, keys: Sequence[TaskKey]) -> None:
        rings, clusters = await self._writer.run(lambda c: gone(c, keys, _now()))
        self._notices.ring(rings)
        self._notices.hint(clusters)

    def _not_at_once(self, done: Committed) -> datetime | None:
        """Overdue rows have been told: their workflows need a moment before they are told again."""
        if not done.overdue:
            return done.next_due
        soon = _now() + timedelta(seconds=self._settings.expire_hint_s)
        return soon if done.next_due is None else min(max(done.next_due, _now()), soon)

    def _fresh(self, partition: int) -> PartitionRounds:
        return PartitionRounds(
            engine=self._engine,
            partition=partition,
            partitions=self._settings.partitions,
            compare_every=timedelta(seconds=self._settings.index_compare_s),
            tasks_max=self._settings.round_tasks_max,
        )


def brings_work(operations: Iterable[LedgerOperation]) -> bool:
    """True when one of them makes, or may make, a row pending."""
    return any(
        isinstance(one, Enqueue) or (isinstance(one, Settle) and isinstance(one.then, Requeue))
        for one in operations
    )


def _seed(now: datetime, partition: int) -> int:
    """The round's id: another one for every round."""
    return int(now.timestamp() * 1_000_000) * 1_000 + partition


def _now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def _heartbeating() -> AsyncIterator[None]:
    """A worker that dies is noticed within one heartbeat timeout, whatever a round is doing."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(HEARTBEAT_S)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
