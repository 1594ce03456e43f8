"""The ledger against chance: any order of requests, repeats and losses, audited after each step."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from domain.attempt import Ending, EndKind, Outcome, Phase, StopCause
from domain.claims import (
    Enqueue,
    Enqueued,
    Finish,
    Requeue,
    Settle,
    Settled,
    Withdraw,
    WithdrawCause,
)
from domain.fleet import Proposal
from domain.protocol import Heartbeat, Offer, OrderAnswer, Orphan, Register
from domain.reasons import Reason
from domain.supervision import Reach
from domain.task import OnLoss
from store.audit import audit
from store.brake import lift_brake
from store.claims import claim
from store.clusters import (
    begin_grant,
    confirm_lost,
    fence,
    grant_answered,
    heartbeat,
    mark_suspect,
    register,
)
from store.ledger import apply
from store.losses import gone, loss_page, orphan
from store.orders import apply_answers, orders, request_stop, stop_unanswered_offers
from store.overview import clusters
from store.session import create_schema, open_engine
from store.tasks import attempts, task
from store.waiting import pending
from tests.store.world import PARTITIONS, World, a_machine, a_task

CLUSTERS = ("c1", "c2")
MACHINES = ("m1", "m2")
TASKS = tuple(f"t{number}" for number in range(6))
ENDINGS = (
    Ending(kind=EndKind.EXITED, exit_code=0),
    Ending(kind=EndKind.EXITED, exit_code=3),
    Ending(kind=EndKind.REFUSED, reason=Reason.AGENT_NO_ROOM),
    Ending(kind=EndKind.STOPPED, stop_cause=StopCause.CANCEL),
    Ending(kind=EndKind.LOST, reason=Reason.MACHINE_LOST),
    Ending(kind=EndKind.FENCED, reason=Reason.CLUSTER_LOST),
)


class LedgerMachine(RuleBasedStateMachine):
    """Two clusters, two machines each, six tasks; nobody behaves well."""

    asked = Bundle("asked")
    """Operations that were carried out once: any of them may come again at any time."""

    def __init__(self) -> None:
        super().__init__()
        engine = open_engine("sqlite://")
        create_schema(engine)
        self.world = World(engine)
        self.numbers: dict[str, int] = {}
        self.final: dict[str, Outcome] = {}
        self.epochs: dict[str, int] = {}

    def teardown(self) -> None:
        self.world.engine.dispose()

    @initialize()
    def two_clusters(self) -> None:
        for name in CLUSTERS:
            self.world.do(register, name, Register(instance="1"), self.world.now)
            self.epochs[name] = self.world.grant(name)
            self.world.beat(name, *(a_machine(m, cpu_milli=2_500) for m in MACHINES))

    # --- task workflows ---

    @rule(
        target=asked,
        task_id=st.sampled_from(TASKS),
        on_loss=st.sampled_from(OnLoss),
        extra=st.booleans(),
    )
    def enqueue(self, task_id: str, on_loss: OnLoss, extra: bool) -> Enqueue:
        given: dict[str, Any] = {"on_loss": on_loss}
        spec = a_task(task_id, constraints={"service": "s"} if extra else {}, **given)
        operation = Enqueue(spec=spec, digest="d", at=self.world.now)
        answer = self.apply(operation)
        assert isinstance(answer, Enqueued)
        assert answer.refusal is None
        if answer.live is not None:
            assert answer.live.number == answer.closed + 1
        return operation

    @rule(
        target=asked,
        task_id=st.sampled_from(TASKS),
        ending=st.sampled_from(ENDINGS),
        back=st.integers(0, 2),
        cluster=st.sampled_from(CLUSTERS),
        ends=st.booleans(),
        late=st.booleans(),
    )
    def settle(
        self, task_id: str, ending: Ending, back: int, cluster: str, ends: bool, late: bool
    ) -> Any:
        key = f"blue/{task_id}"
        number = self.numbers.get(key, 0) - back
        if number < 1:
            return multiple()
        outcome = Outcome(phase=Phase.SUCCEEDED if ending.success else Phase.FAILED, number=number)
        then = Finish(outcome=outcome) if ends else Requeue(not_before=self.world.now)
        operation = Settle(
            key=key,
            number=number,
            cluster=cluster,
            ending=ending,
            then=then,
            at=self.world.now,
            late=late and back > 0,
        )
        answer = self.apply(operation)
        assert isinstance(answer, Settled)
        if answer.mine:
            assert answer.closed >= number
            again = self.apply(operation)
            assert isinstance(again, Settled)
            assert again.mine
        return operation

    @rule(
        target=asked,
        task_id=st.sampled_from(TASKS),
        cause=st.sampled_from(WithdrawCause),
        abandon=st.booleans(),
    )
    def withdraw(self, task_id: str, cause: WithdrawCause, abandon: bool) -> Withdraw:
        outcome = Outcome(phase=Phase.CANCELLED)
        operation = Withdraw(
            key=f"blue/{task_id}", cause=cause, outcome=outcome, abandon=abandon, at=self.world.now
        )
        self.apply(operation)
        return operation

    @rule(operation=asked)
    def repeat(self, operation: Any) -> None:
        self.apply(operation)

    @rule(operations=st.lists(consumes(asked), min_size=2, max_size=4))
    def repeat_several_in_one_transaction(self, operations: list[Any]) -> None:
        self.world.apply(*operations)

    def apply(self, operation: Any) -> Any:
        return self.world.do(apply, [operation], partitions=PARTITIONS, now=self.world.now).answers[
            0
        ]

    # --- placement ---

    @rule(
        wishes=st.lists(
            st.tuples(st.sampled_from(TASKS), st.sampled_from(CLUSTERS), st.sampled_from(MACHINES)),
            max_size=6,
        )
    )
    def place(self, wishes: list[tuple[str, str, str]]) -> None:
        proposals = [Proposal(f"blue/{t}", c, m) for t, c, m in wishes]
        waiting = {row.key for row in self.world.read(pending, 0, self.world.now, 99)}
        for result in self.world.do(claim, 0, proposals, self.world.now):
            if result.number is not None:
                assert result.key in waiting
                assert result.number == self.numbers.get(result.key, 0) + 1
                self.numbers[result.key] = result.number

    # --- agents ---

    @rule(
        cluster=st.sampled_from(CLUSTERS),
        admits=st.lists(st.booleans(), min_size=8, max_size=8),
        older=st.booleans(),
        lost=st.booleans(),
    )
    def deliver(self, cluster: str, admits: list[bool], older: bool, lost: bool) -> None:
        epoch, asked = self.world.do(orders, cluster, 8)
        if lost:
            return
        answers = []
        for order, admit in zip(asked, admits, strict=False):
            said: Any = "taken"
            if isinstance(order, Offer):
                said = "admitted" if admit else "refused"
            answers.append(
                OrderAnswer(key=order.key, number=order.number, order=order.kind, answer=said)
            )
        epoch -= older
        changed = self.world.do(apply_answers, cluster, epoch, answers, self.world.now)
        assert not older or changed == 0
        assert self.world.do(apply_answers, cluster, epoch, answers, self.world.now) == 0

    @rule(cluster=st.sampled_from(CLUSTERS), seconds=st.integers(0, 40), succeed=st.booleans())
    def time_passes(self, cluster: str, seconds: int, succeed: bool) -> None:
        self.world.later(seconds)
        self.world.do(
            stop_unanswered_offers, cluster, self.world.now, 15, deliveries_succeed=succeed
        )

    @rule(task_id=st.sampled_from(TASKS), cause=st.sampled_from(StopCause))
    def stop(self, task_id: str, cause: StopCause) -> None:
        self.world.do(request_stop, f"blue/{task_id}", cause, self.world.now)

    @rule(task_id=st.sampled_from(TASKS), back=st.integers(0, 1), cluster=st.sampled_from(CLUSTERS))
    def orphaned(self, task_id: str, back: int, cluster: str) -> None:
        key = f"blue/{task_id}"
        number = max(1, self.numbers.get(key, 0) - back)
        message = Orphan(key=key, number=number, machine="m1", ending=ENDINGS[0], at=self.world.now)
        self.world.do(orphan, cluster, message, self.world.now)

    @rule(task_ids=st.lists(st.sampled_from(TASKS), max_size=3))
    def workflows_gone(self, task_ids: list[str]) -> None:
        self.world.do(gone, [f"blue/{task_id}" for task_id in task_ids], self.world.now)

    # --- clusters ---

    @rule(cluster=st.sampled_from(CLUSTERS), answered=st.booleans(), all_ended=st.booleans())
    def grant(self, cluster: str, answered: bool, all_ended: bool) -> None:
        granted = self.world.do(begin_grant, cluster, self.world.now)
        assert granted.epoch == self.epochs[cluster] + 1
        self.epochs[cluster] = granted.epoch
        for attempt in granted.closed:
            key, number = attempt.rsplit("#")[0], int(attempt.rsplit("#")[1])
            view = self.world.read(task, key)
            assert view is not None
            assert number < view.number or view.phase.final or view.phase is Phase.PENDING
        if answered:
            ended = granted.closed if all_ended else granted.closed[:1]
            self.world.do(grant_answered, cluster, granted.epoch, ended, self.world.now)

    @rule(cluster=st.sampled_from(CLUSTERS), reachable=st.booleans())
    def beat(self, cluster: str, reachable: bool) -> None:
        beat = Heartbeat(instance="1", epoch=self.epochs[cluster], seq=1)
        self.world.do(heartbeat, cluster, beat, self.world.now, reachable=reachable)

    @rule(cluster=st.sampled_from(CLUSTERS), also_fence=st.booleans(), stale=st.booleans())
    def fall_silent(self, cluster: str, also_fence: bool, stale: bool) -> None:
        epoch = self.epochs[cluster] - stale
        assert self.world.do(mark_suspect, cluster, epoch, self.world.now) is not stale
        if also_fence:
            fenced = self.world.do(fence, cluster, epoch, self.world.now)
            assert not (fenced and stale)

    @rule(cluster=st.sampled_from(CLUSTERS), limit=st.integers(1, 4), tell=st.booleans())
    def page(self, cluster: str, limit: int, tell: bool) -> None:
        found = self.world.do(loss_page, cluster, self.world.now, limit=limit)
        for lost in found.lost:
            then = Requeue(not_before=self.world.now)
            ending = Ending(kind=EndKind.FENCED, reason=lost.reason)
            settle = Settle(
                key=lost.key,
                number=lost.number,
                cluster=cluster,
                ending=ending,
                then=then,
                at=self.world.now,
            )
            if tell:
                answer = self.apply(settle)
                assert isinstance(answer, Settled)
                assert answer.mine

    @rule(cluster=st.sampled_from(CLUSTERS), machine=st.sampled_from((None, *MACHINES)))
    def somebody_vouches(self, cluster: str, machine: str | None) -> None:
        self.world.do(confirm_lost, cluster, machine, "ann", self.world.now)

    @rule()
    def brake_lifted(self) -> None:
        self.world.do(lift_brake, self.world.now, "ann")

    # --- what always holds ---

    @invariant()
    def it_adds_up(self) -> None:
        assert self.world.read(audit) == []

    @invariant()
    def ends_are_for_ever_and_numbers_never_fall(self) -> None:
        for task_id in TASKS:
            view = self.world.read(task, f"blue/{task_id}")
            if view is None:
                continue
            assert view.number == self.numbers.get(view.key, 0)
            if view.key in self.final:
                assert view.outcome == self.final[view.key]
            elif view.outcome is not None:
                self.final[view.key] = view.outcome
            told = self.world.read(attempts, view.key)
            assert [a.number for a in told] == list(range(1, view.number + 1))
            assert sum(not a.closed for a in told) <= 1

    @invariant()
    def a_cluster_without_silence_is_never_fenced(self) -> None:
        for view in self.world.read(clusters):
            if view.state is Reach.FENCED:
                assert view.silent_since is not None


LedgerMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase
