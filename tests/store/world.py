"""A ledger with a clock of its own, and the shortest words for what is asked of it.

After every transaction the ledger is audited: a test fails at the step that broke it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine

from domain.attempt import Ending, EndKind, Outcome, Phase
from domain.claims import (
    Enqueue,
    Enqueued,
    Finish,
    Requeue,
    Settle,
    Settled,
    Then,
    Withdraw,
    WithdrawCause,
    Withdrawn,
)
from domain.fleet import Proposal
from domain.machine import MachineReport
from domain.protocol import Heartbeat, OrderAnswer, Register
from domain.resources import Resources
from domain.task import TaskSpec, body_digest
from domain.views import EventKind, TaskView
from store.audit import audit
from store.claims import claim
from store.clusters import begin_grant, grant_answered, heartbeat, register
from store.ledger import Applied, apply
from store.orders import apply_answers, orders
from store.session import reading, transaction
from store.tasks import events, task

P = ParamSpec("P")
R = TypeVar("R")

START = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS = 1
EXITED = Ending(kind=EndKind.EXITED, exit_code=0)
FAILED = Ending(kind=EndKind.EXITED, exit_code=1)
LOST = Ending(kind=EndKind.LOST)
REFUSED = Ending(kind=EndKind.REFUSED)
STOPPED = Ending(kind=EndKind.STOPPED)
FENCED = Ending(kind=EndKind.FENCED)


def a_task(task_id: str = "t", team: str = "blue", **given: Any) -> TaskSpec:
    """Valid by default, one keyword per difference."""
    fields: dict[str, Any] = {
        "command": ("true",),
        "resources": {"cpu_milli": 1_000, "memory_mib": 100},
        **given,
    }
    return TaskSpec.model_validate({"team": team, "id": task_id, **fields})


def a_machine(name: str = "m1", cpu_milli: int = 4_000, **given: Any) -> MachineReport:
    """Valid by default, one keyword per difference."""
    extra = given.pop("extra", {})
    capacity = Resources(cpu_milli=cpu_milli, memory_mib=100_000, extra=extra)
    return MachineReport.model_validate(
        {"name": name, "instance": "1", "capacity": capacity, **given}
    )


def succeeded(number: int = 1) -> Finish:
    """What follows a success."""
    return Finish(outcome=Outcome(phase=Phase.SUCCEEDED, exit_code=0, number=number))


def cancelled(number: int = 0) -> Outcome:
    """How a cancelled task ends."""
    return Outcome(phase=Phase.CANCELLED, number=number)


@dataclass
class World:
    """One database and one clock."""

    engine: Engine
    now: datetime = START
    beats: dict[str, int] = field(default_factory=dict)
    audited: bool = True

    def later(self, seconds: float) -> None:
        """Time passes."""
        self.now += timedelta(seconds=seconds)

    def do(
        self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kw: P.kwargs
    ) -> R:
        """One transaction, and then the audit."""
        with transaction(self.engine) as connection:
            done = function(connection, *args, **kw)
        if self.audited:
            assert self.read(audit) == []
        return done

    def read(
        self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kw: P.kwargs
    ) -> R:
        """One reading transaction."""
        with reading(self.engine) as connection:
            return function(connection, *args, **kw)

    # --- clusters ---

    def cluster(self, name: str = "c1", *machines: MachineReport) -> int:
        """A cluster that is reachable, with these machines (or m1); the epoch."""
        self.do(register, name, Register(instance=f"{name}-1"), self.now)
        epoch = self.grant(name)
        self.beat(name, *(machines or (a_machine(),)))
        return epoch

    def grant(self, name: str = "c1", *ended: str) -> int:
        """A grant that the agent takes at once; the epoch."""
        granted = self.do(begin_grant, name, self.now)
        self.do(grant_answered, name, granted.epoch, ended, self.now)
        return granted.epoch

    def beat(self, name: str = "c1", *machines: MachineReport, **given: Any) -> set[int]:
        """A heartbeat under the present epoch; the partitions that are rung."""
        seq = self.beats[name] = self.beats.get(name, 0) + 1
        epoch, _ = self.do(orders, name)
        fields = {"instance": f"{name}-1", "epoch": epoch, "seq": seq, "machines": machines}
        beat = Heartbeat(**{**fields, **given})
        return self.do(heartbeat, name, beat, self.now, reachable=True).rings

    # --- tasks ---

    def apply(self, *operations: Any) -> Applied:
        """Several operations in one transaction."""
        return self.do(apply, operations, partitions=PARTITIONS, now=self.now)

    def enqueue(self, spec: TaskSpec | None = None, **given: Any) -> Enqueued:
        """Enqueue one task, `t` of team blue by default."""
        spec = spec or a_task()
        fields = {"spec": spec, "digest": body_digest(spec), "at": self.now, **given}
        answer = self.apply(Enqueue(**fields)).answers[0]
        assert isinstance(answer, Enqueued)
        return answer

    def claim(
        self, key: str = "blue/t", machine: str = "m1", cluster: str = "c1", partition: int = 0
    ) -> int | None:
        """The number, when the claim was made."""
        wish = Proposal(key=key, cluster=cluster, machine=machine)
        return self.do(claim, partition, [wish], self.now)[0].number

    def admit(self, key: str = "blue/t", number: int = 1, cluster: str = "c1") -> int:
        """The agent admits the offer."""
        return self.answer("offer", "admitted", key, number, cluster)

    def answer(
        self, order: str, said: str, key: str = "blue/t", number: int = 1, cluster: str = "c1"
    ) -> int:
        """The agent's word on one order, under the present epoch; how many it changed."""
        epoch, _ = self.do(orders, cluster)
        fields: dict[str, Any] = {"order": order, "answer": said}
        word = OrderAnswer(key=key, number=number, **fields)
        return self.do(apply_answers, cluster, epoch, [word], self.now)

    def settle(
        self,
        ending: Ending = EXITED,
        then: Then | None = None,
        *,
        key: str = "blue/t",
        number: int = 1,
        cluster: str = "c1",
        late: bool = False,
        started_at: datetime | None = None,
        ended_at: datetime | None = None,
    ) -> Settled:
        """Settle one number; what follows is that it waits again, now."""
        settle = Settle(
            key=key,
            number=number,
            cluster=cluster,
            ending=ending,
            then=then or Requeue(not_before=self.now),
            at=self.now,
            started_at=started_at,
            ended_at=ended_at,
            late=late,
        )
        answer = self.apply(settle).answers[0]
        assert isinstance(answer, Settled)
        return answer

    def withdraw(
        self,
        cause: WithdrawCause = WithdrawCause.CANCEL,
        outcome: Outcome | None = None,
        *,
        abandon: bool = False,
        key: str = "blue/t",
    ) -> Withdrawn:
        """Take one task out of the queue."""
        outcome = outcome or cancelled()
        ask = Withdraw(key=key, cause=cause, outcome=outcome, abandon=abandon, at=self.now)
        answer = self.apply(ask).answers[0]
        assert isinstance(answer, Withdrawn)
        return answer

    def running(self, spec: TaskSpec | None = None, machine: str = "m1") -> str:
        """A task whose first attempt is admitted on cluster c1; its key."""
        spec = spec or a_task()
        self.enqueue(spec)
        assert self.claim(spec.key, machine) == 1
        self.admit(spec.key)
        return spec.key

    def task(self, key: str = "blue/t") -> TaskView:
        """The task as readers see it."""
        view = self.read(task, key)
        assert view is not None
        return view

    def phase(self, key: str = "blue/t") -> Phase:
        """Where the task stands."""
        return self.task(key).phase

    def story(self, key: str = "blue/t") -> list[EventKind]:
        """What has happened to the task."""
        return [event.kind for event in self.read(events, key)]
