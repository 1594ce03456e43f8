"""Any order of events, as a machine of rules with a driver that behaves as real ones do."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from domain.attempt import EndKind, StopCause
from domain.protocol import AttemptEnded, Forget, KeeperGrant, LeaseAnswer
from domain.reasons import Reason
from domain.task import OnLoss
from keeper.attempts import (
    Cleared,
    Connected,
    Effects,
    Event,
    Exit,
    Exited,
    Freeze,
    Frozen,
    Instant,
    Keeper,
    Kill,
    Launch,
    Launched,
    LaunchFailed,
    MoveDeadline,
    QuestionDue,
    RecordEnded,
    Send,
    ShutDown,
    Terminate,
    Thaw,
    Ticked,
    check,
    died_with_keeper,
    next_due_ms,
    restored,
    step,
)
from tests.keeper.attempt_builders import instant, start_of, stop_of

NAMES = [f"t{number}" for number in range(30)]
names = st.sampled_from(NAMES)
few_names = st.sampled_from(NAMES[:3])
seldom = st.sampled_from([False] * 9 + [True])


class World(RuleBasedStateMachine):
    """The keeper under test, what its driver has, and the agent's view of time."""

    def __init__(self) -> None:
        super().__init__()
        self.state = Keeper()
        self.now_ms = 0
        self.launched: list[str] = []
        self.unanswered: list[str] = []
        self.processes: dict[str, str] = {}
        """running, frozen or dying, for every attempt the driver has."""
        self.exited: set[str] = set()
        self.stop_sent: set[str] = set()
        self.exit_seen_first: set[str] = set()
        self.granted_until_ms = 0
        self.waits = {name: number % 2 == 1 for number, name in enumerate(NAMES)}

    def tell(self, event: Event) -> Effects:
        now: Instant = instant(self.now_ms)
        self.state, effects = step(self.state, event, now)
        check(self.state)
        for effect in effects:
            self.perform(effect)
        return effects

    def perform(self, effect: object) -> None:
        match effect:
            case Launch(start):
                assert start.attempt not in self.launched, "started twice"
                assert self.now_ms < self.granted_until_ms, "started without a lease"
                self.launched.append(start.attempt)
                self.unanswered.append(start.attempt)
                self.processes[start.attempt] = "running"
            case Terminate(attempt):
                assert attempt not in self.exit_seen_first
                self.stop_sent.add(attempt)
            case Kill(attempt):
                if attempt not in self.exited:
                    self.stop_sent.add(attempt)
                if attempt in self.processes:
                    self.processes[attempt] = "dying"
            case Freeze(attempt):
                assert self.processes[attempt] == "running"
                self.processes[attempt] = "frozen"
            case Thaw(attempt):
                assert self.processes[attempt] == "frozen"
                assert attempt not in self.stop_sent, "thawed after it was told to stop"
                self.processes[attempt] = "running"
            case MoveDeadline(deadline_ms):
                assert deadline_ms <= self.granted_until_ms
            case RecordEnded(ended):
                assert ended.attempt not in self.processes, "ended with its processes there"
                if ended.attempt in self.exit_seen_first:
                    assert ended.ending.kind is EndKind.EXITED
                elif ended.attempt in self.stop_sent:
                    assert ended.ending.kind is EndKind.STOPPED
            case Send():
                pass

    @initialize()
    def begin(self) -> None:
        self.grant(1, 50, closed=set())

    # --- the agent ------------------------------------------------------------------------------

    @rule(epoch_step=st.integers(0, 2), seconds=st.sampled_from([0, 50, 60]), closed=st.sets(names))
    def grant(self, epoch_step: int, seconds: int, closed: set[str]) -> None:
        self.tell(QuestionDue())
        over = tuple(start_of(name).attempt for name in closed)
        epoch = self.state.epoch + epoch_step
        self.granted_until_ms = max(self.granted_until_ms, self.now_ms + seconds * 1_000)
        self.tell(
            KeeperGrant(
                question=self.state.questions_asked,
                epoch=epoch,
                remaining_ms=seconds * 1_000,
                closed=over,
            )
        )
        for attempt in over:
            assert self.processes.get(attempt) in (None, "dying") or attempt in self.exited

    @rule(seconds=st.integers(0, 50), late_ms=st.integers(0, 20_000))
    def ask_and_be_answered(self, seconds: int, late_ms: int) -> None:
        self.tell(QuestionDue())
        asked_ms, epoch = self.now_ms, self.state.epoch
        self.now_ms += late_ms
        self.tell(Ticked())
        if self.state.lease is not None:
            self.granted_until_ms = max(self.granted_until_ms, asked_ms + seconds * 1_000)
        before = self.state.lease
        self.tell(
            LeaseAnswer(
                question=self.state.questions_asked, epoch=epoch, remaining_ms=seconds * 1_000
            )
        )
        assert before is not None or self.state.lease is None, "an answer began a lease"

    @rule(
        name=names,
        timeout=st.none() | st.integers(1, 30),
        grace=st.integers(0, 20),
        at_once=st.booleans(),
    )
    def start(self, name: str, timeout: int | None, grace: int, at_once: bool) -> None:
        on_loss = OnLoss.WAIT if self.waits[name] else OnLoss.REPLACE_AFTER_FENCE
        start = start_of(name, run_timeout_s=timeout, grace_s=grace, on_loss=on_loss)
        self.tell(start)
        if at_once and start.attempt in self.unanswered:
            self.unanswered.remove(start.attempt)
            self.tell(Launched(start.attempt))

    @rule(name=few_names, cause=st.sampled_from(StopCause), grace=st.integers(0, 20))
    def stop_any(self, name: str, cause: StopCause, grace: int) -> None:
        self.stop(start_of(name).attempt, cause, grace)

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), cause=st.sampled_from(StopCause), grace=st.integers(0, 20))
    def stop_one(self, data: st.DataObject, cause: StopCause, grace: int) -> None:
        self.stop(data.draw(st.sampled_from(sorted(self.processes))), cause, grace)

    def stop(self, attempt: str, cause: StopCause, grace: int) -> None:
        self.tell(Ticked())
        before = self.processes.get(attempt)
        self.tell(stop_of(attempt, cause, grace))
        if before == "frozen":
            assert self.processes[attempt] == "dying", "not killed unthawed"
        elif before is not None:
            assert attempt in self.stop_sent | self.exited, "not told to stop"

    @rule(name=names)
    def forget(self, name: str) -> None:
        self.tell(Forget(attempts=(start_of(name).attempt,)))

    @rule()
    def connect(self) -> None:
        messages = [effect.message for effect in self.tell(Connected()) if isinstance(effect, Send)]
        sent = {message.attempt for message in messages if isinstance(message, AttemptEnded)}
        assert sent == set(self.state.ended)

    # --- the driver -----------------------------------------------------------------------------

    @precondition(lambda self: self.unanswered)
    @rule(fails=st.booleans())
    def launch_is_answered(self, fails: bool) -> None:
        attempt = self.unanswered.pop(0)
        if fails:
            del self.processes[attempt]
            self.tell(LaunchFailed(attempt, Reason.CANNOT_START))
        else:
            self.tell(Launched(attempt))

    @precondition(lambda self: self.able_to_exit())
    @rule(data=st.data(), code=st.integers(0, 3))
    def main_child_exits(self, data: st.DataObject, code: int) -> None:
        attempt = data.draw(st.sampled_from(self.able_to_exit()))
        if attempt not in self.stop_sent:
            # Time acts first: a grace or timeout that ended by now comes before this exit.
            self.tell(Ticked())
        if attempt not in self.stop_sent:
            self.exit_seen_first.add(attempt)
        self.exited.add(attempt)
        self.tell(Exited(attempt, Exit(code)))

    def able_to_exit(self) -> list[str]:
        return [a for a in self.processes if a not in self.exited and a not in self.unanswered]

    @precondition(lambda self: self.exited & self.processes.keys())
    @rule(data=st.data())
    def the_rest_of_a_tree_goes(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.exited & self.processes.keys())))
        del self.processes[attempt]
        self.tell(Cleared(attempt))

    # --- the machine ------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 100, 2_000, 10_000, 70_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.tell(Ticked())
        due_ms = next_due_ms(self.state)
        assert due_ms is None or due_ms > self.now_ms or self.tell(Ticked()), "due and not done"

    @precondition(lambda self: self.state.lease is not None and self.state.live)
    @rule(late_ms=st.sampled_from([0, 0, 1, 30_000]))
    def the_deadline_passes(self, late_ms: int) -> None:
        assert self.state.lease is not None
        self.now_ms = self.state.lease.deadline_ms + late_ms
        self.tell(Ticked())
        self.nothing_runs_after_the_deadline_unless_it_waits()

    @precondition(lambda self: any(isinstance(a.stage, Frozen) for a in self.state.live.values()))
    @rule()
    def what_is_frozen_is_granted_more(self) -> None:
        self.grant(1, 60, closed=set())
        assert "frozen" not in self.processes.values()

    @precondition(lambda self: not self.state.shutting_down and not self.unanswered)
    @rule(sure=seldom)
    def shut_down(self, sure: bool) -> None:
        if sure:
            self.tell(ShutDown(grace_ms_max=5_000))

    @precondition(lambda self: not self.unanswered)
    @rule(sure=seldom)
    def keeper_restarts(self, sure: bool) -> None:
        """Everything it ran is killed, and its numbers are remembered as over."""
        if not sure:
            return
        died = [died_with_keeper(attempt, instant(self.now_ms).at) for attempt in self.state.live]
        tombstones = (*self.state.tombstones.values(), *died)
        self.state = restored(tuple(self.state.ended.values()), tombstones)
        self.processes.clear()
        self.granted_until_ms = 0

    @invariant()
    def nothing_runs_after_the_deadline_unless_it_waits(self) -> None:
        if self.now_ms < self.granted_until_ms or self.state.lease is not None:
            return
        for attempt, state in self.processes.items():
            name = attempt.partition("/")[2].partition("#")[0]
            assert state != "running" or self.waits[name] or attempt in self.exited

    @invariant()
    def what_is_frozen_is_frozen(self) -> None:
        for attempt, live in self.state.live.items():
            if isinstance(live.stage, Frozen):
                assert self.processes[attempt] == "frozen"


World.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestWorld = World.TestCase
