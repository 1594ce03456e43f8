"""The ledger against chance: any order of requests, repeats and losses, audited after each step."""

import itertools
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
from domain.ids import attempt_id
from domain.protocol import Heartbeat, Offer, OrderAnswer, Orphan, Register
from domain.reasons import Reason
from domain.supervision import Reach
from domain.task import OnLoss
from domain.views import TaskView
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
from store.tasks import tasks
from store.waiting import pending
from tests.store.world import PARTITIONS, World, a_machine, a_task

CLUSTERS = ("c1", "c2")
MACHINES = ("m1", "m2")
TASKS = tuple(f"t{number}" for number in range(9))
REACHABILITY = (
    *("beat", "suspect", "fence an older epoch", "vouch", "lift"),
    *(3 * ("both back",)),
    *(4 * ("fence",)),
)
"""Weighted, so that clusters are lost with work on them, and come back to be given more."""
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
        self.world = World(engine, audited=False)
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
        for task_id, on_loss in zip(TASKS, itertools.cycle(OnLoss), strict=False):
            spec = a_task(task_id, on_loss=on_loss)
            self.apply(Enqueue(spec=spec, digest="d", at=self.world.now))

    # --- task workflows ---

    @rule(target=asked, task_id=st.sampled_from(TASKS))
    def enqueue(self, task_id: str) -> Enqueue:
        on_loss = list(OnLoss)[TASKS.index(task_id) % len(OnLoss)]
        operation = Enqueue(spec=a_task(task_id, on_loss=on_loss), digest="d", at=self.world.now)
        answer = self.apply(operation)
        assert isinstance(answer, Enqueued)
        assert answer.refusal is None
        if answer.live is not None:
            assert answer.live.number == answer.closed + 1
        return operation

    @rule(
        target=asked,
        pick=st.integers(0, 9),
        ending=st.sampled_from(ENDINGS),
        ends=st.integers(0, 3),
    )
    def settle_what_is_claimed(self, pick: int, ending: Ending, ends: int) -> Any:
        claimed = self.claimed()
        if not claimed:
            return multiple()
        view = claimed[pick % len(claimed)]
        operation = self.settling(view, view.number, view.cluster or "", ending, ends=not ends)
        answer = self.apply(operation)
        assert isinstance(answer, Settled)
        assert answer.mine or ending.kind is EndKind.FENCED
        return operation

    @rule(
        target=asked,
        task_id=st.sampled_from(TASKS),
        ending=st.sampled_from(ENDINGS),
        back=st.integers(0, 2),
        cluster=st.sampled_from(CLUSTERS),
        ends=st.booleans(),
    )
    def settle_anything(
        self, task_id: str, ending: Ending, back: int, cluster: str, ends: bool
    ) -> Any:
        view = self.world.task(f"blue/{task_id}")
        number = view.number - back
        if number < 1:
            return multiple()
        operation = self.settling(view, number, cluster, ending, ends=ends, late=back > 0)
        self.apply(operation)
        return operation

    def claimed(self) -> list[TaskView]:
        """Every task whose number is open."""
        views = self.world.read(tasks).items
        return [v for v in views if not v.phase.final and v.phase is not Phase.PENDING]

    def settling(
        self,
        view: TaskView,
        number: int,
        cluster: str,
        ending: Ending,
        *,
        ends: bool,
        late: bool = False,
    ) -> Settle:
        """What the workflow of this task would ask."""
        outcome = Outcome(phase=Phase.SUCCEEDED if ending.success else Phase.FAILED, number=number)
        return Settle(
            key=view.key,
            number=number,
            cluster=cluster,
            ending=ending,
            then=Finish(outcome=outcome) if ends else Requeue(not_before=self.world.now),
            at=self.world.now,
            late=late,
        )

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

    @rule(places=st.lists(st.integers(0, 3), min_size=1, max_size=6))
    def place_some(self, places: list[int]) -> None:
        rows = self.world.read(pending, 0, self.world.now, 99)
        self.place([(row.key, place) for row, place in zip(rows, places, strict=False)])

    @rule(wishes=st.lists(st.tuples(st.sampled_from(TASKS), st.integers(0, 3)), max_size=6))
    def place_anything(self, wishes: list[tuple[str, int]]) -> None:
        self.place([(f"blue/{task_id}", place) for task_id, place in wishes])

    def place(self, wishes: list[tuple[str, int]]) -> None:
        """Claim, and see that only waiting rows win, each with the next number."""
        proposals = [Proposal(key, CLUSTERS[p // 2], MACHINES[p % 2]) for key, p in wishes]
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
            offers = [f"{o.key}#{o.number}" for o in asked if isinstance(o, Offer)]
            self.world.do(apply_answers, cluster, epoch, [], self.world.now, left_out=offers)
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

    @rule(
        task_id=st.sampled_from(TASKS),
        kind=st.sampled_from(("stop", "orphan", "orphan of an older number", "gone")),
        cause=st.sampled_from(StopCause),
        cluster=st.sampled_from(CLUSTERS),
    )
    def something_odd(self, task_id: str, kind: str, cause: StopCause, cluster: str) -> None:
        key, now = f"blue/{task_id}", self.world.now
        if kind == "stop":
            self.world.do(request_stop, key, cause, now)
        elif kind == "gone":
            self.world.do(gone, [key], now)
        else:
            number = max(1, self.numbers.get(key, 0) - (kind != "orphan"))
            news = Orphan(key=key, number=number, machine="m1", ending=ENDINGS[0], at=now)
            self.world.do(orphan, cluster, news, now)

    # --- clusters ---

    @rule(cluster=st.sampled_from(CLUSTERS), answered=st.booleans(), all_ended=st.booleans())
    def grant(self, cluster: str, answered: bool, all_ended: bool) -> None:
        granted = self.world.do(begin_grant, cluster, self.world.now)
        assert granted.epoch == self.epochs[cluster] + 1
        self.epochs[cluster] = granted.epoch
        open_now = {attempt_id(view.key, view.number) for view in self.claimed()}
        assert not open_now & set(granted.closed)
        if answered:
            ended = granted.closed if all_ended else granted.closed[:1]
            self.world.do(grant_answered, cluster, granted.epoch, ended, self.world.now)

    @rule(
        cluster=st.sampled_from(CLUSTERS),
        kind=st.sampled_from(REACHABILITY),
        machine=st.sampled_from((None, *MACHINES)),
    )
    def reachability_changes(self, cluster: str, kind: str, machine: str | None) -> None:
        now, epoch = self.world.now, self.epochs[cluster]
        match kind:
            case "beat":
                beat = Heartbeat(instance="1", epoch=epoch, seq=1)
                self.world.do(heartbeat, cluster, beat, now, reachable=True)
            case "both back":
                for name in CLUSTERS:
                    self.epochs[name] = self.world.grant(name)
            case "suspect":
                assert self.world.do(mark_suspect, cluster, epoch, now)
                self.tell(cluster, 9)
            case "fence":
                self.world.do(mark_suspect, cluster, epoch, now)
                if self.world.do(fence, cluster, epoch, now):
                    self.tell(cluster, 9)
            case "fence an older epoch":
                assert not self.world.do(fence, cluster, epoch - 1, now)
            case "vouch":
                self.world.do(confirm_lost, cluster, machine, "ann", now)
            case _:
                self.world.do(lift_brake, now, "ann")

    @rule(cluster=st.sampled_from(CLUSTERS), limit=st.integers(1, 4), told=st.integers(0, 4))
    def page(self, cluster: str, limit: int, told: int) -> None:
        self.tell(cluster, limit, told)

    def tell(self, cluster: str, limit: int, told: int = 2) -> None:
        """A page of a loss, of which only so many workflows answer."""
        found = self.world.do(loss_page, cluster, self.world.now, limit=limit)
        for lost in found.lost[:told]:
            view = self.world.task(lost.key)
            ending = Ending(kind=EndKind.FENCED, reason=lost.reason)
            answer = self.apply(self.settling(view, lost.number, cluster, ending, ends=False))
            assert isinstance(answer, Settled)
            assert answer.mine

    # --- what always holds ---

    @invariant()
    def it_adds_up(self) -> None:
        assert self.world.read(audit) == []

    @invariant()
    def ends_are_for_ever_and_numbers_never_fall(self) -> None:
        for view in self.world.read(tasks).items:
            assert view.number == self.numbers.get(view.key, 0)
            if view.outcome is not None:
                assert view.outcome == self.final.setdefault(view.key, view.outcome)
            else:
                assert view.key not in self.final

    @invariant()
    def a_cluster_without_silence_is_never_fenced(self) -> None:
        for view in self.world.read(clusters):
            if view.state is Reach.FENCED:
                assert view.silent_since is not None


LedgerMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase
