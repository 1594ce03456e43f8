"""The keeper around its pure decisions: carries messages and the driver's news to `step`, and does
what comes back, in order. Owns the clock and the timer; decides nothing.
"""

import asyncio
import base64
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from domain.machine import MachineReport
from domain.protocol import (
    AgentMessage,
    AttemptEnded,
    AttemptStarted,
    KeeperHello,
    LogAnswer,
    LogQuestion,
    StopAttempt,
)
from domain.reasons import Reason
from keeper import attempts
from keeper.attempts import (
    Connected,
    Effect,
    Event,
    Freeze,
    Instant,
    Keeper,
    Kill,
    Launch,
    LaunchFailed,
    MoveDeadline,
    QuestionDue,
    RecordEnded,
    RecordForgotten,
    Send,
    ShutDown,
    Terminate,
    Thaw,
    Ticked,
)
from keeper.drivers.driver import Driver
from keeper.journal import Journal
from keeper.output import read_output
from keeper.spawn import attempt_folder, is_attempt_id
from keeper.tie import Tie
from runtime.telemetry import logger

TICK_S_MAX = 1.0
"""The loop's clock stands still in a suspend, the boot clock does not: look at least so often."""
QUESTION_S_MAX_URGENT = 1.0
QUESTIONS_PER_LEASE = 6
KILL_S_MAX = 5.0
"""How long the dying may take after the last grace, before a shutdown goes on without them."""


def now() -> Instant:
    """This machine's clocks."""
    boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return Instant(boot_ms=boot_ms, at=datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this keeper says it is."""

    machine: MachineReport
    token: str
    lease_s: float


class KeeperShell:
    """One keeper. Give it its driver and its way to the agent before it is told anything."""

    def __init__(
        self, identity: Identity, state: Keeper, journal: Journal | None, folder: Path | None
    ) -> None:
        """Without a journal and a folder (simulated machines) nothing is kept or read."""
        self._identity = identity
        self._state = state
        self._journal = journal
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._events: deque[tuple[Event, Instant]] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._all_said = asyncio.Event()
        self.driver: Driver
        self.send: Callable[[BaseModel], None]
        self.tie: Tie | None = None

    # --- what others tell it ----------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Something happened now: decide and act. Told from within an action, it waits its turn."""
        self._events.append((event, now()))
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                self._step(*self._events.popleft())
        finally:
            self._busy = False
        self._set_timer()
        if not self._state.live:
            self._empty.set()
            if not self._state.ended:
                self._all_said.set()

    def hello(self) -> KeeperHello:
        """See `keeper.link.Side`."""
        lease = self._state.lease
        return KeeperHello(
            machine=self._identity.machine,
            epoch=0 if lease is None else lease.epoch,
            live=tuple(self._state.live),
            token=self._identity.token,
            leaving=self._state.shutting_down,
        )

    def connected(self) -> None:
        """See `keeper.link.Side`."""
        self.tell(Connected())

    def received(self, message: AgentMessage) -> None:
        """See `keeper.link.Side`."""
        match message:
            case LogQuestion():
                self.send(self._log_answer(message))
            case StopAttempt():
                self.driver.look(message.attempt)
                self.tell(message)
            case _:
                self.tell(message)

    def ask(self) -> float:
        """See `keeper.link.Side`."""
        self.tell(QuestionDue())
        pause_s = self._identity.lease_s / QUESTIONS_PER_LEASE
        lease = self._state.lease
        if lease is None or lease.deadline_ms - now().boot_ms < pause_s * 1_000:
            return min(pause_s, QUESTION_S_MAX_URGENT)
        return pause_s

    def held(self) -> set[str]:
        """Attempts whose folders are still needed."""
        return {*self._state.live, *self._state.ended}

    async def shut_down(self, grace_s_max: float, forget_s_max: float) -> None:
        """Stop every attempt and wait until the agent has the endings, or for so long."""
        self._empty.clear()
        self._all_said.clear()
        self.tell(ShutDown(grace_ms_max=round(grace_s_max * 1_000)))
        try:
            await asyncio.wait_for(self._empty.wait(), grace_s_max + KILL_S_MAX)
            await asyncio.wait_for(self._all_said.wait(), forget_s_max)
        except TimeoutError:
            logger().warning(
                "ends before all is said", live=len(self._state.live), kept=len(self._state.ended)
            )

    def close(self) -> None:
        """No more timers."""
        if self._timer is not None:
            self._timer.cancel()

    # --- what it does -----------------------------------------------------------------------------

    def _step(self, event: Event, instant: Instant) -> None:
        before = self._state
        self._state, effects = attempts.step(before, event, instant)
        if (before.lease is None) != (self._state.lease is None):
            logger().info("lease", held=self._state.lease is not None, epoch=self._state.epoch)
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Launch():
                self._launch(effect)
            case Terminate(attempt):
                self.driver.terminate(attempt)
            case Kill(attempt):
                self.driver.kill(attempt)
            case Freeze(attempt):
                logger().info("freeze", attempt=attempt)
                self.driver.freeze(attempt)
            case Thaw(attempt):
                logger().info("thaw", attempt=attempt)
                self.driver.thaw(attempt)
            case MoveDeadline(deadline_ms):
                if self.tie is not None:
                    self.tie.move_deadline(deadline_ms)
            case RecordEnded(ended):
                self._record_ended(ended)
            case RecordForgotten(names):
                if self._journal is not None:
                    self._journal.forgotten(names)
            case Send(message):
                if isinstance(message, AttemptStarted):
                    logger().info("started", attempt=message.attempt)
                self.send(message)

    def _launch(self, launch: Launch) -> None:
        attempt = launch.start.attempt
        if self._journal is not None:
            try:
                self._journal.intend(attempt)
            except OSError as error:
                # Unwritten, a restart could start the number again: so it does not start at all.
                self.tell(LaunchFailed(attempt, Reason.CANNOT_START, f"journal: {error}"))
                return
        self.tell(self.driver.launch(launch.start))

    def _record_ended(self, ended: AttemptEnded) -> None:
        ending = ended.ending
        logger().info(
            "ended", attempt=ended.attempt, kind=ending.kind.value, exit_code=ending.exit_code
        )
        if self._journal is not None:
            try:
                self._journal.ended(ended)
            except OSError as error:
                # Still in memory and sent; a restart would call it lost, which is the safe side.
                logger().error("ending not journalled", attempt=ended.attempt, error=str(error))

    def _log_answer(self, question: LogQuestion) -> LogAnswer:
        live = question.attempt in self._state.live
        if self._folder is None or not is_attempt_id(question.attempt):
            return LogAnswer(question=question.question, known=live)
        folder = attempt_folder(self._folder, question.attempt)
        if not live and not folder.is_dir():
            return LogAnswer(question=question.question, known=False)
        chunk = read_output(folder, question.stream, question.offset, question.limit)
        return LogAnswer(
            question=question.question,
            known=True,
            first=chunk.first,
            data=base64.b64encode(chunk.data).decode(),
            ended=not live and chunk.first + len(chunk.data) >= chunk.total,
        )

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = attempts.next_due_ms(self._state)
        if due_ms is not None:
            delay_s = (due_ms - now().boot_ms) / 1_000
            delay_s = max(0.0, min(TICK_S_MAX, delay_s))
            self._timer = self._loop.call_later(delay_s, self.tell, Ticked())
