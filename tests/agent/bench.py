"""An agent's pure state with a clock, on which tests play scheduler and keepers."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from agent.admission import (
    Answer,
    Beaten,
    Connected,
    Disconnected,
    Effect,
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
    check,
    restored,
    step,
)
from agent.entries import Entry
from agent.state import What
from domain.attempt import Ending, EndKind, StopCause
from domain.ids import attempt_id
from domain.machine import MachineReport
from domain.protocol import (
    AgentMessage,
    AttemptEnded,
    AttemptStarted,
    Delivery,
    DeliveryAnswer,
    Ended,
    Grant,
    GrantAnswer,
    Inquiry,
    KeeperHello,
    KeeperMessage,
    LeaseQuestion,
    Offer,
    Order,
    OrderAnswer,
    StopOrder,
)
from domain.resources import Resources
from domain.task import OnLoss, TaskSpec

WALL = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "blue/t1"
EXITED = Ending(kind=EndKind.EXITED, exit_code=0)


def a_spec(key: str = KEY, cpu_milli: int = 1_000, on_loss: OnLoss | None = None) -> TaskSpec:
    team, _, task_id = key.partition("/")
    return TaskSpec(
        team=team,
        id=task_id,
        command=("/bin/true",),
        resources=Resources(cpu_milli=cpu_milli, memory_mib=1),
        on_loss=on_loss or OnLoss.REPLACE_AFTER_FENCE,
    )


def an_offer(
    key: str = KEY,
    number: int = 1,
    machine: str = "m1",
    cpu_milli: int = 1_000,
    on_loss: OnLoss | None = None,
) -> Offer:
    spec = a_spec(key, cpu_milli, on_loss)
    return Offer(key=key, number=number, machine=machine, spec=spec)


def a_stop(
    key: str = KEY,
    number: int = 1,
    cause: StopCause = StopCause.PREEMPT,
    machine: str = "m1",
) -> StopOrder:
    return StopOrder(key=key, number=number, machine=machine, cause=cause, grace_s=5)


def an_inquiry(key: str = KEY, number: int = 1, machine: str = "m1") -> Inquiry:
    return Inquiry(key=key, number=number, machine=machine)


def a_machine(name: str = "m1", instance: str = "k1", cpu_milli: int = 4_000) -> MachineReport:
    capacity = Resources(cpu_milli=cpu_milli, memory_mib=1_000)
    return MachineReport(name=name, instance=instance, capacity=capacity)


@dataclass
class Bench:
    """The agent under test. `effects` holds those of the last event."""

    terms: Terms = field(default_factory=Terms)
    now_ms: int = 1_000_000
    journal: list[Entry] = field(default_factory=list)
    effects: tuple[Effect, ...] = ()
    connections: int = 0
    questions: int = 0
    instance: int = 1

    def __post_init__(self) -> None:
        self.state: State
        self.start()

    def start(self) -> None:
        """A new agent process on the same journal."""
        self.state, self.effects = restored(
            self.journal,
            terms=self.terms,
            cluster="c1",
            instance=f"a{self.instance}",
            now_ms=self.now_ms,
        )
        self.instance += 1
        check(self.state)

    def tell(self, what: What) -> tuple[Effect, ...]:
        """One event, checked; its records are in the journal afterwards."""
        at = WALL + timedelta(milliseconds=self.now_ms)
        self.state, self.effects = step(self.state, Event(what, self.now_ms, at))
        check(self.state)
        self.journal += [e.entry for e in self.effects if isinstance(e, Record)]
        return self.effects

    def wait(self, ms: int, *, tick_ms: int = 500) -> list[Effect]:
        """Let time pass, with ticks."""
        effects: list[Effect] = []
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + tick_ms)
            effects += self.tell(Ticked())
        return effects

    # --- the scheduler's part

    def grant(self, epoch: int = 1, closed: tuple[str, ...] = ()) -> GrantAnswer:
        self.tell(Beaten(self.now_ms))
        self.tell(Grant(cluster="c1", epoch=epoch, closed=closed))
        (answer,) = [e.answer for e in self.effects if isinstance(e, Answer)]
        assert isinstance(answer, GrantAnswer)
        return answer

    def deliver(self, *orders: Order, epoch: int | None = None) -> tuple[OrderAnswer, ...]:
        epoch = self.state.epoch if epoch is None else epoch
        self.tell(Delivery(cluster="c1", epoch=epoch, orders=orders))
        (answer,) = [e.answer for e in self.effects if isinstance(e, Answer)]
        assert isinstance(answer, DeliveryAnswer)
        return answer.answers

    def word(self, order: Order, epoch: int | None = None) -> str:
        """The answer to one order: `admitted`, `refused agent_no_room`, ..., or `none`."""
        answers = self.deliver(order, epoch=epoch)
        if not answers:
            return "none"
        reason = answers[0].reason
        return answers[0].answer + (f" {reason}" if reason else "")

    # --- the keepers' part

    def hello(
        self, name: str = "m1", instance: str = "k1", live: tuple[str, ...] = (), **size: int
    ) -> None:
        self.connections += 1
        report = a_machine(name, instance, **size)
        hello = KeeperHello(machine=report, epoch=0, live=live)
        self.tell(Connected(hello, self.connections))

    def say(self, message: KeeperMessage, name: str = "m1") -> tuple[Effect, ...]:
        connection = self.state.machines[name].connection
        return self.tell(Said(name, connection or 0, message))

    def ask(self, name: str = "m1", epoch: int = 0) -> list[AgentMessage]:
        """A lease question; what the agent sent to that keeper then."""
        self.questions += 1
        self.say(LeaseQuestion(question=self.questions, epoch=epoch), name)
        return self.sent(name)

    def hang_up(self, name: str = "m1") -> None:
        connection = self.state.machines[name].connection
        assert connection is not None
        self.tell(Disconnected(name, connection))

    def started(self, attempt: str = f"{KEY}#1") -> None:
        self.say(AttemptStarted(attempt=attempt, at=WALL), self.machine_of(attempt))

    def ended(self, attempt: str = f"{KEY}#1", ending: Ending = EXITED) -> None:
        said = AttemptEnded(attempt=attempt, ending=ending, started_at=WALL, at=WALL)
        self.say(said, self.machine_of(attempt))

    def machine_of(self, attempt: str) -> str:
        live = self.state.live.get(attempt)
        return live.machine if live is not None else "m1"

    # --- what the agent did

    def sent(self, name: str = "m1") -> list[AgentMessage]:
        return [e.message for e in self.effects if isinstance(e, ToKeeper) and e.machine == name]

    def reports(self) -> list[Report]:
        return [e for e in self.effects if isinstance(e, Report)]

    def endings(self) -> list[Ending]:
        return [r.message.ending for r in self.reports() if isinstance(r.message, Ended)]

    def handed_over(self) -> list[HandOver]:
        return [e for e in self.effects if isinstance(e, HandOver)]

    def take(self) -> None:
        """Temporal has everything the last event reported."""
        for sent in [e for e in self.effects if isinstance(e, Report | HandOver)]:
            self.tell(ReportTaken(sent))

    def refuse_reports(self) -> None:
        """The workflows of everything the last event reported are gone."""
        effects: list[Effect] = []
        for sent in self.reports():
            effects += self.tell(WorkflowGone(sent))
        self.effects = tuple(effects)


def a_bench(terms: Terms | None = None, machines: tuple[str, ...] = ("m1",)) -> Bench:
    """With a lease and these machines, each with a lease of its own."""
    bench = Bench(terms or Terms())
    bench.grant()
    for name in machines:
        bench.hello(name)
        bench.ask(name)
    return bench


def running(bench: Bench, key: str = KEY, number: int = 1, machine: str = "m1") -> str:
    """One attempt that the keeper has started."""
    assert bench.word(an_offer(key, number, machine)) == "admitted"
    bench.started(attempt_id(key, number))
    return attempt_id(key, number)
