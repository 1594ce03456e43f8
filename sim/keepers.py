"""A keeper's shell: carries out what `keeper.attempts` decides, on trees and a journal."""

from domain.machine import MachineReport
from domain.protocol import AgentMessage, AttemptEnded, KeeperHello, KeeperMessage, LogQuestion
from domain.reasons import Reason
from keeper.attempts import (
    Cleared,
    Connected,
    Effect,
    Event,
    Exit,
    Exited,
    Freeze,
    Instant,
    Kill,
    Launch,
    Launched,
    LaunchFailed,
    MoveDeadline,
    QuestionDue,
    RecordEnded,
    RecordForgotten,
    Send,
    Terminate,
    Thaw,
    Ticked,
    check,
    died_with_keeper,
    next_due_ms,
    restored,
    step,
)
from sim.clock import MS, SECOND
from sim.process import Process
from sim.sockets import Dialler, Socket
from sim.trees import Truth

REDIAL_US = SECOND


class KeeperShell:
    """The keeper of one machine, its warden beside it, and its journal, which outlives both."""

    def __init__(
        self,
        process: Process,
        machine: MachineReport,
        dialler: Dialler,
        truth: Truth,
        question_us: int,
    ) -> None:
        self.process = process
        self.machine = machine
        self.lives = 0
        self.keeper = restored((), ())
        self._dialler = dialler
        self._truth = truth
        self._rng = process.rng
        self._question_us = question_us
        self._socket: Socket | None = None
        self._stalled = False
        self._waiting: list[Event] = []
        self._started: set[str] = set()
        self._endings: dict[str, AttemptEnded] = {}
        self._forgotten: dict[str, AttemptEnded] = {}
        self._deadline_ms: int | None = None
        self._drift = 1 + process.rng.uniform(-0.004, 0.004)
        self._offset_ms = process.rng.randrange(10**6)
        self.launch_fails = 0.0
        self.decide = step
        """What a planted fault replaces."""
        self.guards = True
        """Whether its warden works."""
        process.on_crash = self._died

    # --- its life -------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new life: the journal says what an earlier one had started, and all that is dead."""
        self.lives += 1
        self.machine = self.machine.model_copy(update={"instance": f"life-{self.lives}"})
        known = self._endings.keys() | self._forgotten.keys()
        for attempt in sorted(self._started - known):
            self._endings[attempt] = died_with_keeper(attempt, self.process.clock.instant)
        self.keeper = restored(tuple(self._endings.values()), tuple(self._forgotten.values()))
        self._stalled = False
        self._waiting = []
        self._deadline_ms = None
        self.process.after(self._rng.randrange(SECOND), self._dial)
        self.process.after(self._question_us, self._ask)

    def stall(self, for_us: int) -> None:
        """Its process stands still, as in a machine that swaps; its warden does not."""
        self._stalled = True
        self.process.trace.line(self.process.name, "stall", f"{for_us // MS} ms")
        self.process.after(for_us, self._go_on)

    def boot_ms(self) -> int:
        """The machine's own clock."""
        return self._offset_ms + int(self.process.clock.now_us * self._drift) // MS

    def _died(self) -> None:
        """The pipe to the warden ends: it kills every tree."""
        if self._socket is not None:
            self._socket.drop()
        self._socket = None
        for attempt in self._trees():
            self._truth.kill(attempt)

    def _go_on(self) -> None:
        self._stalled = False
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self.happens(event)

    def _trees(self) -> list[str]:
        here = self.machine.name
        return [t.attempt for t in self._truth.trees.values() if t.machine == here]

    # --- its socket -----------------------------------------------------------------------------

    def _dial(self) -> None:
        if self._socket is not None or self._stalled:
            self.process.after(REDIAL_US, self._dial)
            return
        hello = KeeperHello(
            machine=self.machine,
            epoch=self.keeper.epoch,
            live=tuple(sorted(self.keeper.live)),
        )
        self._socket = self._dialler(self, hello)
        if self._socket is not None:
            self.happens(Connected())
            self.happens(QuestionDue())
        self.process.after(REDIAL_US, self._dial)

    def hears(self, socket: Socket, message: AgentMessage) -> None:
        """A message of the agent."""
        if socket is self._socket and self.process.up and not isinstance(message, LogQuestion):
            self.happens(message)

    def hung_up(self, socket: Socket) -> None:
        """The connection has ended."""
        if socket is self._socket:
            self._socket = None

    def _ask(self) -> None:
        self.happens(QuestionDue())
        self.process.after(self._question_us, self._ask)

    def _send(self, message: KeeperMessage) -> None:
        if self._socket is not None:
            self._socket.to_agent(message)

    # --- its decisions --------------------------------------------------------------------------

    def happens(self, event: Event) -> None:
        """One step, and its effects in order."""
        if not self.process.up:
            return
        if self._stalled:
            self._waiting.append(event)
            return
        instant = Instant(self.boot_ms(), self.process.clock.instant)
        self.keeper, effects = self.decide(self.keeper, event, instant)
        check(self.keeper)
        for effect in effects:
            self._carry_out(effect)
        self._tick()

    def _tick(self) -> None:
        due_ms = next_due_ms(self.keeper)
        if due_ms is not None:
            wait_us = int(max(0, due_ms - self.boot_ms()) * MS / self._drift) + MS
            self.process.after(wait_us, lambda: self._due(due_ms))

    def _due(self, due_ms: int) -> None:
        if next_due_ms(self.keeper) == due_ms:
            self.happens(Ticked())

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Launch(start=start):
                self._started.add(start.attempt)
                self._launch(effect)
            case Terminate(attempt=attempt):
                self._truth.terminate(attempt)
            case Kill(attempt=attempt):
                self._truth.kill(attempt)
            case Freeze(attempt=attempt):
                self._truth.freeze(attempt)
            case Thaw(attempt=attempt):
                self._truth.thaw(attempt)
            case MoveDeadline(deadline_ms=deadline_ms):
                self._guard(deadline_ms)
            case RecordEnded(ended=ended):
                self._endings[ended.attempt] = ended
            case RecordForgotten(attempts=attempts):
                for attempt in attempts:
                    self._forgotten[attempt] = self._endings.pop(attempt)
            case Send(message=message):
                self._send(message)

    def _launch(self, launch: Launch) -> None:
        attempt, spec = launch.start.attempt, launch.start.spec
        if self.launch_fails and self._rng.random() < self.launch_fails:
            self._soon(attempt, LaunchFailed(attempt, Reason.CANNOT_START, "no more processes"))
            return

        def on_exit(code: int, killed: bool) -> None:
            self._soon(attempt, Exited(attempt, Exit(code, by_signal=killed)))
            self._soon(attempt, Cleared(attempt))

        self._truth.launch(attempt, spec, self.machine.name, on_exit)
        self._soon(attempt, Launched(attempt))

    def _soon(self, attempt: str, event: Event) -> None:
        """The driver's news, in the order in which they happened."""
        self.process.after(2 * MS, lambda: self._news(attempt, event))

    def _news(self, attempt: str, event: Event) -> None:
        live = self.keeper.live.get(attempt)
        if live is None:
            return
        self.happens(event)

    def _guard(self, deadline_ms: int) -> None:
        """The warden freezes at the deadline if the keeper has not."""
        self._deadline_ms = deadline_ms
        wait_us = int(max(0, deadline_ms - self.boot_ms()) * MS / self._drift)
        self.process.after(wait_us, lambda: self._warden(deadline_ms))

    def _warden(self, deadline_ms: int) -> None:
        if self.guards and self._deadline_ms == deadline_ms:
            for attempt in self._trees():
                live = self.keeper.live.get(attempt)
                if live is None or not live.waits:
                    self._truth.freeze(attempt)
