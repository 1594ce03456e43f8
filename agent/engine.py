"""The agent around its pure decisions: events in one queue, journal first, then everything else.

Decides nothing. Events that came while the disk was syncing are taken together, so that one sync
serves many.
"""

import asyncio
import contextlib
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from agent.admission import (
    Answer,
    Effects,
    Event,
    HandOver,
    Record,
    Report,
    State,
    Ticked,
    ToKeeper,
    snapshot,
    step,
)
from agent.entries import Entry
from agent.journal import Journal
from agent.state import What
from domain.protocol import AgentMessage, Delivery, DeliveryAnswer, Forget, Grant, GrantAnswer
from runtime.telemetry import logger

TICK_S = 0.5
FORGET_S = 0.2
"""Keepers hold their endings so much longer, and one sync serves all that came meanwhile."""
EVENTS_PER_SYNC_MAX = 500
IDLE_S_MAX = 1.0

_A = TypeVar("_A", DeliveryAnswer, GrantAnswer)


def boot_ms() -> int:
    """Milliseconds of the clock that also runs while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Keepers(Protocol):
    """Where messages to keepers go."""

    def send(self, machine: str, message: AgentMessage) -> None:
        """To that keeper, or nowhere when it is not connected."""


class Outbox(Protocol):
    """Where reports go."""

    def put(self, sent: Report | HandOver) -> None:
        """Send it until it is acknowledged or refused for good."""


@dataclass(slots=True)
class _Letter:
    what: What
    answer: "asyncio.Future[DeliveryAnswer | GrantAnswer] | None" = None


class Engine:
    """One agent's state and its loop. Give it `keepers` and `outbox` before it runs."""

    def __init__(self, state: State, restored: Effects, journal: Journal) -> None:
        self.state = state
        self.keepers: Keepers
        self.outbox: Outbox
        self.changed = asyncio.Event()
        """Set when a heartbeat has something to say: news of machines, an epoch, the brake."""
        self._restored = restored
        self._journal = journal
        self._letters: deque[_Letter] = deque()
        self._woken = asyncio.Event()
        self._quiet = asyncio.Event()
        self._forgets: dict[str, list[str]] = defaultdict(list)
        self._forgetting: asyncio.TimerHandle | None = None
        self._flushing = False
        self._compacting: asyncio.Task[None] | None = None

    def tell(self, what: What) -> None:
        """Something happened."""
        self._put(_Letter(what))

    async def deliver(self, delivery: Delivery) -> DeliveryAnswer:
        """The agent's word on these orders, once it is journalled."""
        return await self._ask(delivery, DeliveryAnswer)

    async def grant(self, grant: Grant) -> GrantAnswer:
        """The agent's answer to a grant, once it is journalled."""
        return await self._ask(grant, GrantAnswer)

    async def _ask(self, what: Delivery | Grant, kind: type[_A]) -> _A:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[DeliveryAnswer | GrantAnswer] = loop.create_future()
        self._put(_Letter(what, future))
        answer = await future
        assert isinstance(answer, kind)
        return answer

    def _put(self, letter: _Letter) -> None:
        self._letters.append(letter)
        self._quiet.clear()
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        ticking = asyncio.create_task(self._tick())
        try:
            self._carry_out(self._restored)
            while True:
                await self._woken.wait()
                self._woken.clear()
                while self._letters or self._flushing:
                    await self._advance()
                self._quiet.set()
        finally:
            ticking.cancel()

    async def idle(self) -> None:
        """Until what was told is journalled, or for a second."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_S_MAX):
                await self._quiet.wait()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.tell(Ticked())

    async def _advance(self) -> None:
        epoch, braked = self.state.epoch, self.state.braked
        entries: list[Entry] = []
        effects: list[Effects] = []
        answers: list[tuple[_Letter, Effects]] = []
        for _ in range(min(len(self._letters), EVENTS_PER_SYNC_MAX)):
            letter = self._letters.popleft()
            event = Event(letter.what, boot_ms(), datetime.now(UTC))
            self.state, did = step(self.state, event)
            entries += [effect.entry for effect in did if isinstance(effect, Record)]
            effects.append(did)
            if letter.answer is not None:
                answers.append((letter, did))
        flushing, self._flushing = self._flushing, False
        if self._journal.append(entries) or flushing:
            await asyncio.to_thread(self._journal.sync)
        for did in effects:
            self._carry_out(did)
        for letter, did in answers:
            _resolve(letter, did)
        if flushing:
            self._send_forgets()
        if self.state.news or (self.state.epoch, self.state.braked) != (epoch, braked):
            self.changed.set()
        if self._journal.long and self._compacting is None:
            # Here, where nothing else touches the file, and before the next event.
            compacting = self._compact(self._journal.turn(), self.state)
            self._compacting = asyncio.create_task(compacting)

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case ToKeeper(machine=machine, message=Forget(attempts=attempts)):
                    self._forgets[machine] += attempts
                    self._flush_later()
                case ToKeeper(machine=machine, message=message):
                    self.keepers.send(machine, message)
                case Report() | HandOver():
                    self.outbox.put(effect)
                case Record() | Answer():
                    pass

    # --- forgetting: only what the disk has -------------------------------------------------------

    def _flush_later(self) -> None:
        if self._forgetting is None:
            loop = asyncio.get_running_loop()
            self._forgetting = loop.call_later(FORGET_S, self._flush)

    def _flush(self) -> None:
        self._forgetting = None
        self._flushing = True
        self._woken.set()

    def _send_forgets(self) -> None:
        """All of them: their endings were written before the sync that has just ended."""
        forgets, self._forgets = self._forgets, defaultdict(list)
        for machine, attempts in forgets.items():
            self.keepers.send(machine, Forget(attempts=tuple(attempts)))

    async def _compact(self, generation: int, state: State) -> None:
        """The state is frozen, so a thread can write it down while the loop goes on."""
        began = time.monotonic()
        try:
            await asyncio.to_thread(lambda: self._journal.compact(generation, snapshot(state)))
        except OSError as error:
            logger().error("journal not compacted", error=str(error))
        else:
            logger().info("journal compacted", seconds=round(time.monotonic() - began, 3))
        self._compacting = None


def _resolve(letter: _Letter, effects: Effects) -> None:
    assert letter.answer is not None
    answer = next(effect.answer for effect in effects if isinstance(effect, Answer))
    if not letter.answer.done():  # The activity may have been given up meanwhile.
        letter.answer.set_result(answer)
