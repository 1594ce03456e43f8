"""An agent's shell: carries out what `agent.admission` decides, on a journal and sockets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from agent.admission import (
    Answer,
    Beaten,
    Connected,
    Disconnected,
    Effects,
    Event,
    HandOver,
    Record,
    Report,
    ReportTaken,
    Said,
    State,
    Terms,
    Ticked,
    ToKeeper,
    WorkflowGone,
    bulletin,
    check,
    leased,
    restored,
    step,
)
from domain.protocol import (
    ClusterEnvelope,
    ClusterMessage,
    Delivery,
    Forget,
    Grant,
    Heartbeat,
    KeeperHello,
    KeeperMessage,
    Register,
    TaskEnvelope,
)
from sim.clock import MS, SECOND, Act
from sim.network import Network
from sim.process import Process
from sim.sockets import Socket

TICK_US = SECOND
POLL_US = 2 * SECOND
LATE_ORDER_US_MAX = 25 * SECOND
URGENT = frozenset({"epoch", "admitted", "stop", "closed", "buried"})
"""Kinds of entries that the disk has before anybody is told; others may be lost in a crash."""

Signal = Callable[[str, Any], bool]


@dataclass
class Journal:
    """What a crash leaves of it."""

    entries: list[Any] = field(default_factory=list)
    synced: int = 0

    def append(self, entry: Any) -> None:
        """An urgent entry takes all before it to the disk."""
        self.entries.append(entry)
        if entry.kind in URGENT:
            self.sync()

    def sync(self) -> None:
        """Everything is on the disk."""
        self.synced = len(self.entries)

    def crash(self, rng: Random) -> None:
        """Of what was not synced, some first part may have been written."""
        del self.entries[rng.randint(self.synced, len(self.entries)) :]
        self.synced = len(self.entries)


@dataclass(frozen=True)
class AgentSettings:
    """Whose agent it is, and its numbers."""

    cluster: str
    terms: Terms
    heartbeat_s: float


class AgentShell:
    """The agent of one cluster."""

    def __init__(
        self,
        process: Process,
        network: Network,
        rng: Random,
        settings: AgentSettings,
        tell_task: Signal,
        tell_cluster: Signal,
    ) -> None:
        self.process = process
        self.cluster = settings.cluster
        self.terms = settings.terms
        self._beat_us = int(settings.heartbeat_s * SECOND)
        self.lives = 0
        self.journal = Journal()
        self.sockets: dict[str, Socket] = {}
        self.crash_per_effect = 0.0
        self.late_orders = 0.0
        self.decide = step
        """What a planted fault replaces."""
        self._stalled = False
        self._waiting: list[Act] = []
        self._network = network
        self._rng = rng
        self._tell_task = tell_task
        self._tell_cluster = tell_cluster
        self._connections = 0
        self._outbox: dict[tuple[str, str], Report | HandOver] = {}
        self._seq = 0
        self._registered = False
        self._polled_ms = 0
        self._drift = 1 + rng.uniform(-0.004, 0.004)
        self._offset_ms = rng.randrange(10**6)
        process.on_crash = self._died
        self.state = self._restored()[0]

    # --- its life -------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new life, with nothing but the journal."""
        self.lives += 1
        self._outbox = {}
        self._stalled = False
        self._waiting = []
        self._registered = False
        self._polled_ms = self.boot_ms()
        self.state, effects = self._restored()
        self._carry_out(effects)
        self._tick()
        self._poll()
        self.process.after(self._rng.randrange(SECOND), self._beat)

    def boot_ms(self) -> int:
        """Its machine's own clock."""
        return self._offset_ms + int(self.process.clock.now_us * self._drift) // MS

    def take(self, ask: Delivery | Grant, answered: Callable[[Any], None]) -> bool:
        """An activity of its queue, if it polls now."""
        way = ("temporal", self.process.name)
        if not self.process.up or self._stalled or way in self._network.blocked:
            return False
        life = self.process.life

        def arrive() -> None:
            if self.process.up and self.process.life == life:
                self._serve(ask, answered)

        if self.late_orders and self._rng.random() < self.late_orders:
            # Taken by a poller, and then held up: it may arrive after it was given up.
            self.process.after(self._rng.randrange(LATE_ORDER_US_MAX), arrive)
        else:
            self._network.send("temporal", self.process.name, arrive)
        return True

    def _restored(self) -> tuple[State, Effects]:
        return restored(
            self.journal.entries,
            terms=self.terms,
            cluster=self.cluster,
            instance=f"{self.cluster}-life-{self.lives}",
            now_ms=self.boot_ms(),
        )

    def _died(self) -> None:
        self.journal.crash(self._rng)
        for socket in self.sockets.values():
            socket.drop()
        self.sockets = {}

    # --- keepers --------------------------------------------------------------------------------

    def accept(self, socket: Socket, hello: KeeperHello) -> None:
        """A keeper's first message."""
        self._connections += 1
        socket.number = self._connections
        self.sockets[socket.machine] = socket
        self.happens(Connected(hello, socket.number))

    def hears(self, socket: Socket, message: KeeperMessage) -> None:
        """A keeper's message."""
        if not self.process.up:
            return
        if isinstance(message, KeeperHello):
            self.accept(socket, message)
        else:
            self.happens(Said(socket.machine, socket.number, message))

    def hung_up(self, socket: Socket) -> None:
        """The connection has ended."""
        if self.sockets.get(socket.machine) is socket:
            del self.sockets[socket.machine]
        if self.process.up:
            self.happens(Disconnected(socket.machine, socket.number))

    # --- its decisions --------------------------------------------------------------------------

    def happens(self, what: Any) -> None:
        """One step, and its effects in order."""
        if self._stalled:
            self._waiting.append(partial(self.happens, what))
            return
        self._carry_out(self._step(what))

    def stall(self, for_us: int) -> None:
        """Its process stands still; what reaches it waits."""
        self._stalled = True
        self.process.trace.line(self.process.name, "stall", f"{for_us // MS} ms")
        self.process.after(for_us, self._go_on)

    def _go_on(self) -> None:
        self._stalled = False
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            if self.process.up:
                act()

    def _step(self, what: Any) -> Effects:
        event = Event(what, self.boot_ms(), self.process.clock.instant)
        self.state, effects = self.decide(self.state, event)
        if effects:
            check(self.state)
        return effects

    def _carry_out(self, effects: Effects, answered: Callable[[Any], None] | None = None) -> None:
        for effect in effects:
            if self.crash_per_effect and self._rng.random() < self.crash_per_effect:
                self.process.crash()
                return
            match effect:
                case Record(entry=entry):
                    self.journal.append(entry)
                case ToKeeper(machine=machine, message=message):
                    if isinstance(message, Forget):
                        self.journal.sync()
                    if machine in self.sockets:
                        self.sockets[machine].to_keeper(message)
                case Report() | HandOver():
                    self._outbox[effect.attempt, _kind(effect)] = effect
                    self._post(effect)
                case Answer(answer=answer):
                    assert answered is not None, effect
                    self._network.send(
                        self.process.name,
                        "temporal",
                        lambda a=answer: answered(a),  # type: ignore[misc]
                    )

    def _serve(self, ask: Delivery | Grant, answered: Callable[[Any], None]) -> None:
        if self._stalled:
            self._waiting.append(partial(self._serve, ask, answered))
            return
        self._carry_out(self._step(ask), answered)

    # --- Temporal -------------------------------------------------------------------------------

    def _post(self, letter: Report | HandOver) -> None:
        """Until it is acknowledged, or another has taken its place."""
        key = (letter.attempt, _kind(letter))
        if self._outbox.get(key) != letter:
            return
        life = self.process.life

        def done(taken: bool | None) -> None:
            if not self.process.up or self.process.life != life:
                return
            if self._outbox.get(key) != letter:
                return
            if taken is None:
                self.process.after(self._rng.randrange(SECOND, 4 * SECOND), again)
                return
            del self._outbox[key]
            if taken or isinstance(letter, HandOver):
                self.happens(ReportTaken(letter))
            else:
                self.happens(WorkflowGone(letter))

        def again() -> None:
            self._post(letter)

        self._network.call(self.process.name, "temporal", lambda: self._deliver(letter), done)

    def _deliver(self, letter: Report | HandOver) -> bool:
        if isinstance(letter, HandOver):
            return self._tell_cluster(self.cluster, self._cluster_letter(letter.orphan))
        envelope = TaskEnvelope(sender=self.process.name, message=letter.message)
        key = letter.attempt.rpartition("#")[0]
        return self._tell_task(key, envelope.model_dump(mode="json"))

    def _cluster_letter(self, message: ClusterMessage) -> Any:
        envelope = ClusterEnvelope(sender=self.process.name, message=message)
        return envelope.model_dump(mode="json")

    def _tick(self) -> None:
        self.happens(Ticked())
        self.process.after(TICK_US, self._tick)

    def _poll(self) -> None:
        """Whether activities would reach it: without that, heartbeats must end."""
        asked_ms = self.boot_ms()

        def done(taken: bool | None) -> None:
            if taken:
                self._polled_ms = max(self._polled_ms, asked_ms)

        self._network.call(self.process.name, "temporal", lambda: True, done)
        self.process.after(POLL_US, self._poll)

    def _beat(self) -> None:
        if not self._stalled and self.boot_ms() - self._polled_ms < self.terms.lease_ms:
            if not self._registered:
                self._say(Register(instance=self.state.instance), ())
            self._heartbeat()
        self.process.after(self._beat_us, self._beat)

    def _heartbeat(self) -> None:
        """An epoch of 0 says that there is no lease: it asks for a grant."""
        self._seq += 1
        news = bulletin(self.state, self.boot_ms())
        heartbeat = Heartbeat(
            instance=self.state.instance,
            epoch=self.state.epoch if leased(self.state, self.boot_ms()) else 0,
            seq=self._seq,
            machines=news.machines,
            states=news.states,
            running=news.running,
        )
        self._say(heartbeat, news.told)

    def _say(self, message: ClusterMessage, told: tuple[tuple[str, int], ...]) -> None:
        sent_ms = self.boot_ms()
        raw = self._cluster_letter(message)
        life = self.process.life

        def done(taken: bool | None) -> None:
            if taken and self.process.up and self.process.life == life:
                self._registered = self._registered or isinstance(message, Register)
                self.happens(Beaten(sent_ms, told))

        def serve() -> bool:
            return self._tell_cluster(self.cluster, raw)

        self._network.call(self.process.name, "temporal", serve, done)


def _kind(letter: Report | HandOver) -> str:
    return "orphan" if isinstance(letter, HandOver) else letter.message.kind
