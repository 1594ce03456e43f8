"""Scheduler, keepers and agent in any order of events, with restarts and lost connections.

The keepers here are a second, small description of what a keeper does: numbers start once, endings
are kept until forgotten. A start is counted where it would happen, at the keeper.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.admission import Answer, HandOver, Report, ReportTaken, Stage, ToKeeper, WorkflowGone
from agent.state import What
from domain.attempt import Ending, EndKind, StopCause
from domain.protocol import (
    AttemptEnded,
    AttemptStarted,
    Delivery,
    DeliveryAnswer,
    Ended,
    Forget,
    KeeperGrant,
    LeaseAnswer,
    StartAttempt,
    StopAttempt,
)
from tests.agent.bench import WALL, Bench, a_stop, an_inquiry, an_offer

MACHINES = ("m1", "m2")
KEYS = ("blue/a", "blue/b", "red/c")
CAPACITY = 2_000
SIZES = st.sampled_from((500, 1_000, 1_500))


@dataclass
class FakeKeeper:
    """One machine. `mail` was sent and has not arrived; it is lost with the connection."""

    instance: int = 1
    connected: bool = False
    lease: bool = False
    live: dict[str, int] = field(default_factory=dict)
    over: dict[str, AttemptEnded] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)


class AgentMachine(RuleBasedStateMachine):
    """Rules are what may happen; invariants are what must not."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.keepers = {name: FakeKeeper() for name in MACHINES}
        self.starts: dict[str, int] = defaultdict(int)
        self.numbers: dict[str, int] = defaultdict(int)
        self.offers: dict[tuple[str, int], tuple[str, int]] = {}
        self.epoch = 0
        self.ended: dict[str, Ending] = {}
        """What Temporal was told, whether or not it has acknowledged."""
        self.owed: set[str] = set()
        """Attempts whose end the agent knows and Temporal does not."""
        self.told_by_keeper: set[str] = set()
        self.stops_ordered: set[str] = set()

    # --- the shell

    def tell(self, what: What) -> None:
        self.bench.tell(what)
        self.perform()

    def perform(self) -> None:
        for effect in self.bench.effects:
            match effect:
                case ToKeeper(machine=name, message=message):
                    self.at_keeper(name, message)
                case Report(attempt=attempt, message=Ended(ending=ending)):
                    self.reported(attempt, ending)
                case _:
                    pass

    def reported(self, attempt: str, ending: Ending) -> None:
        live = self.bench.state.live.get(attempt)
        if ending.kind is EndKind.STOPPED and attempt not in self.told_by_keeper:
            fenced = live is not None and self.bench.state.machines[live.machine].fenced
            dead = all(attempt not in keeper.live for keeper in self.keepers.values())
            assert fenced or dead, f"{attempt}: a stop was answered before the keeper's word"
        if ending.kind is EndKind.REFUSED:
            assert not self.starts[attempt], f"{attempt}: refused, and started"
        self.ended[attempt] = ending
        self.owed.add(attempt)

    def at_keeper(self, name: str, message: object) -> None:
        keeper = self.keepers[name]
        if not keeper.connected:
            return
        match message:
            case KeeperGrant(closed=closed):
                keeper.lease = True
                for attempt in closed:
                    if keeper.live.pop(attempt, None) is not None:
                        self.over(keeper, attempt, EndKind.STOPPED, StopCause.SUPERSEDED)
            case LeaseAnswer():
                pass
            case StartAttempt(attempt=attempt, spec=spec) if keeper.lease:
                if attempt not in keeper.live | keeper.over and attempt not in keeper.forgotten:
                    keeper.live[attempt] = spec.resources.cpu_milli
                    self.starts[attempt] += 1
            case StopAttempt(attempt=attempt, cause=cause):
                if keeper.live.pop(attempt, None) is not None or attempt not in keeper.over:
                    self.over(keeper, attempt, EndKind.STOPPED, cause)
            case Forget(attempts=attempts):
                for attempt in attempts:
                    keeper.over.pop(attempt, None)
                    keeper.forgotten.add(attempt)

    def over(
        self, keeper: FakeKeeper, attempt: str, kind: EndKind, cause: StopCause | None
    ) -> None:
        ending = Ending(kind=kind, exit_code=0, stop_cause=cause)
        said = AttemptEnded(attempt=attempt, ending=ending, started_at=WALL, at=WALL)
        keeper.over[attempt] = said

    # --- the scheduler

    @rule(key=st.sampled_from(KEYS), machine=st.sampled_from(MACHINES), cpu_milli=SIZES)
    def offer(self, key: str, machine: str, cpu_milli: int) -> None:
        self.numbers[key] += 1
        self.offers[key, self.numbers[key]] = (machine, cpu_milli)
        self.deliver_offer(key, self.numbers[key], self.epoch)

    @precondition(lambda self: self.offers)
    @rule(data=st.data(), old=st.booleans())
    def offer_again(self, data: st.DataObject, old: bool) -> None:
        key, number = data.draw(st.sampled_from(sorted(self.offers)))
        self.deliver_offer(key, number, self.epoch - old)

    def deliver_offer(self, key: str, number: int, epoch: int) -> None:
        machine, cpu_milli = self.offers[key, number]
        offer = an_offer(key, number, machine, cpu_milli)
        self.tell(Delivery(cluster="c1", epoch=epoch, orders=(offer,)))
        (answer,) = [e.answer for e in self.bench.effects if isinstance(e, Answer)]
        assert isinstance(answer, DeliveryAnswer)
        if [a.answer for a in answer.answers] == ["stale"]:
            closed = f"{key}#{number}" in self.bench.state.closed
            assert closed or epoch != self.bench.state.epoch

    @precondition(lambda self: self.offers)
    @rule(data=st.data(), inquire=st.booleans())
    def stop_or_inquire(self, data: st.DataObject, inquire: bool) -> None:
        key, number = data.draw(st.sampled_from(sorted(self.offers)))
        machine = self.offers[key, number][0]
        order = an_inquiry(key, number, machine) if inquire else a_stop(key, number)
        self.tell(Delivery(cluster="c1", epoch=self.epoch, orders=(order,)))
        if inquire and f"{key}#{number}" in self.ended:
            assert f"{key}#{number}" in {r.attempt for r in self.bench.reports()}

    @rule(data=st.data(), close=st.booleans())
    def grant(self, data: st.DataObject, close: bool) -> None:
        self.epoch += 1
        closed: tuple[str, ...] = ()
        if close and self.offers:
            key, number = data.draw(st.sampled_from(sorted(self.offers)))
            closed = (f"{key}#{number}",)
        self.bench.grant(self.epoch, closed)
        self.perform()

    # --- Temporal

    @precondition(lambda self: self.owed)
    @rule(data=st.data(), gone=st.booleans())
    def answer_report(self, data: st.DataObject, gone: bool) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.owed)))
        sent = [
            r
            for r in self.outbox()
            if isinstance(r, Report) and isinstance(r.message, Ended) and r.attempt == attempt
        ]
        assert sent, f"{attempt}: its end is in no outbox"
        self.tell(WorkflowGone(sent[0]) if gone else ReportTaken(sent[0]))
        if gone:
            for handed in self.bench.handed_over():
                self.tell(ReportTaken(handed))
        self.owed.discard(attempt)

    def outbox(self) -> list[object]:
        """What a restart at this instant would send."""
        other = Bench(journal=list(self.bench.journal))
        return list(other.effects)

    # --- keepers

    @rule(name=st.sampled_from(MACHINES), restart=st.booleans(), ask=st.booleans())
    def connect(self, name: str, restart: bool, ask: bool) -> None:
        keeper = self.keepers[name]
        keeper.connected, keeper.lease = True, False
        if restart:
            keeper.instance += 1
            keeper.live = {}
        self.bench.hello(
            name,
            f"k{keeper.instance}",
            tuple(keeper.live),
            cpu_milli=CAPACITY,
        )
        self.perform()
        self.say_endings(name)
        if ask:
            self.ask(name)

    @rule(name=st.sampled_from(MACHINES))
    def ask(self, name: str) -> None:
        if self.keepers[name].connected:
            self.bench.ask(name, epoch=0)
            self.perform()

    @rule(name=st.sampled_from(MACHINES))
    def say_endings(self, name: str) -> None:
        keeper = self.keepers[name]
        if not keeper.connected:
            return
        for said in list(keeper.over.values()):
            self.told_by_keeper.add(said.attempt)
            self.bench.say(said, name)
            self.perform()

    @rule(name=st.sampled_from(MACHINES), data=st.data(), started=st.booleans())
    def run(self, name: str, data: st.DataObject, started: bool) -> None:
        """An attempt starts or exits; the news of an exit may wait for `say_endings`."""
        keeper = self.keepers[name]
        if not keeper.live:
            return
        attempt = data.draw(st.sampled_from(sorted(keeper.live)))
        if not started:
            del keeper.live[attempt]
            self.over(keeper, attempt, EndKind.EXITED, None)
        elif keeper.connected:
            self.bench.say(AttemptStarted(attempt=attempt, at=WALL), name)
            self.perform()

    @rule(name=st.sampled_from(MACHINES))
    def hang_up(self, name: str) -> None:
        if self.keepers[name].connected:
            self.keepers[name].connected = False
            self.bench.hang_up(name)
            self.perform()

    # --- time and faults

    @rule(seconds=st.sampled_from((1, 20, 70)))
    def wait(self, seconds: int) -> None:
        self.bench.effects = tuple(self.bench.wait(seconds * 1_000, tick_ms=2_000))
        self.perform()

    @rule()
    def agent_restarts(self) -> None:
        for keeper in self.keepers.values():
            keeper.connected = False
        self.bench.start()
        owed = {e.attempt for e in self.bench.effects if isinstance(e, Report | HandOver)}
        assert self.owed <= owed, "an ending is in no outbox"
        self.perform()

    # --- what must hold (bench.tell checks the state itself after every event)

    @invariant()
    def nothing_starts_twice(self) -> None:
        assert {a: n for a, n in self.starts.items() if n > 1} == {}

    @invariant()
    def no_machine_is_over_capacity(self) -> None:
        for machine in self.bench.state.machines.values():
            assert machine.used.cpu_milli <= CAPACITY
        for keeper in self.keepers.values():
            assert sum(keeper.live.values()) <= CAPACITY

    @invariant()
    def one_attempt_of_a_task_at_a_time(self) -> None:
        """Beside it there may be remnants: closed, or lost on a machine that stands still."""
        running = [a for a in self.bench.state.live.values() if a.stage is not Stage.REMNANT]
        assert len({a.key for a in running}) == len(running)


TestAgentMachine = AgentMachine.TestCase
TestAgentMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
