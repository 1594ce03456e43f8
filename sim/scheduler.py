"""The worker's activities as steps: a death fits between any two ledger transactions."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from domain.attempt import Ending, EndKind, Outcome, Phase, StopCause
from domain.claims import Enqueued, Finish, LedgerOperation, Settle, Withdrawn
from domain.fleet import ClaimResult
from domain.partition import RoundsDone
from domain.protocol import (
    ClusterEnvelope,
    DeliveryHint,
    Expire,
    Fenced,
    TaskEnvelope,
)
from domain.reasons import Reason
from domain.supervision import (
    ClusterOperation,
    LeaseTerms,
    LookAtBrake,
    LossPaged,
    NoteHeartbeat,
    OrdersLoaded,
    PageLoss,
    Reach,
)
from placement.index import MachineIndex
from placement.policy import DEFAULT_POLICY
from placement.round import place
from sim.clock import Clock
from sim.durable import Perform
from sim.entities import Closed
from sim.rows import standing
from sim.trace import Trace
from store import ledger
from store.bell import bell_busy, bell_idle
from store.brake import brake_held
from store.claims import claim
from store.cooldowns import cooling
from store.fleet import fleet
from store.losses import LostAttempt, gone, loss_page
from store.orders import request_stop
from store.session import transaction
from store.supervision import supervise
from store.verdicts import record_verdicts
from store.waiting import expired, next_due, pending

PARTITIONS = 2
ROUND_TASKS_MAX = 100
ROUNDS_MAX = 20
LOSS_PASSES_MAX = 100
LOSS_PASS_STEPS = 200
"""So many steps lie between two passes: some hundred milliseconds."""
T = TypeVar("T")

Ring = Callable[[int], None]
Tell = Callable[[str, Any], bool]


class Scheduler:
    """What activities/ does with the ledger, and whom it tells afterwards."""

    def __init__(self, clock: Clock, trace: Trace, engine: Engine, terms: LeaseTerms) -> None:
        self.clock = clock
        self.trace = trace
        self.engine = engine
        self.terms = terms
        self.writes = 0
        self.ring: Ring = lambda _: None
        self.tell_task: Tell = lambda _key, _raw: False
        self.tell_cluster: Tell = lambda _name, _raw: False

    # --- for tasks ------------------------------------------------------------------------------

    def ledger(self, operation: LedgerOperation) -> Perform:
        """One operation, then the bells and hints it asks for."""
        applied = self._commit(
            lambda c: ledger.apply(c, [operation], partitions=PARTITIONS, now=self.clock.instant)
        )
        answer = applied.answers[0]
        what: str = operation.kind
        if isinstance(operation, Settle):
            what = f"{'late' if operation.late else 'settle'} {operation.ending.kind}"
        self.trace.line("ledger", what, f"{_brief(operation)} -> {_brief(answer)}")
        yield
        self._rings(applied.rings)
        yield
        match answer:
            case Enqueued(live=live) | Withdrawn(live=live) if live is not None:
                self._hints([live.cluster])
        return answer

    # --- for partitions -------------------------------------------------------------------------

    def place_round(self, partition: int) -> Perform:
        """Rounds while there is work."""
        placed = 0
        for number in range(ROUNDS_MAX):
            wakes = self._commit(lambda c: bell_busy(c, partition, self.clock.instant))
            yield
            began = self.clock.instant
            proposals, verdicts, overdue = self._solve(partition)
            yield
            claimed = []
            if proposals:
                claimed = self._commit(partial(self._claim, partition, proposals))
                self._show_claims(claimed)
            yield
            if verdicts:
                self._commit(partial(self._recording, verdicts))
            won = {one.key for one in claimed if one.number is not None}
            placed += len(won)
            yield
            self._hints({p.cluster for p in proposals if p.key in won})
            yield from self._tell_expired(overdue)
            again = len(won) < len(proposals)
            if not again and self._sleeps(partition, wakes):
                due = self._commit(partial(self._next_due, partition, began))
                soon = max(self.clock.instant, began + timedelta(seconds=1)) if overdue else None
                due = min((at for at in (due, soon) if at is not None), default=None)
                return RoundsDone(rounds=number + 1, placed=placed, next_due=due)
        return RoundsDone(rounds=ROUNDS_MAX, placed=placed, more=True)

    def close_gone(self, keys: Iterable[str]) -> Perform:
        """The workflows of these tasks do not exist."""
        rings, clusters = self._commit(lambda c: gone(c, list(keys), self.clock.instant))
        yield
        self._rings(rings)
        self._hints(clusters)
        return Closed()

    def _solve(self, partition: int) -> Any:
        now = self.clock.instant
        with transaction(self.engine) as connection:
            index = MachineIndex()
            index.replace(fleet(connection))
            tasks = pending(connection, partition, now, ROUND_TASKS_MAX)
            overdue = expired(connection, partition, now)
            cool: dict[str, frozenset[str]] = {}
            for cluster, shape in cooling(connection, now):
                cool[shape] = cool.get(shape, frozenset()) | {cluster}
        result = place(index, tasks, DEFAULT_POLICY, self.clock.now_us, cooling=cool)
        return result.placed, result.verdicts, overdue

    def _claim(self, partition: int, wishes: Any, connection: Connection) -> list[ClaimResult]:
        return claim(connection, partition, wishes, self.clock.instant)

    def _recording(self, verdicts: Any, connection: Connection) -> int:
        return record_verdicts(connection, verdicts, self.clock.instant)

    def _next_due(self, partition: int, began: datetime, connection: Connection) -> datetime | None:
        return next_due(connection, partition, began)

    def _show_claims(self, claimed: Iterable[ClaimResult]) -> None:
        for one in claimed:
            number = "lost race" if one.number is None else f"#{one.number}"
            self.trace.line("ledger", "claim", f"{one.key} {number}")

    def _sleeps(self, partition: int, wakes: int) -> bool:
        return self._commit(lambda c: bell_idle(c, partition, wakes, self.clock.instant))

    def _tell_expired(self, keys: Iterable[str]) -> Perform:
        for key in keys:
            letter = TaskEnvelope(sender="worker", message=Expire())
            there = self.tell_task(key, letter.model_dump(mode="json"))
            yield
            if not there:
                yield from self.close_gone([key])

    # --- for clusters ---------------------------------------------------------------------------

    def cluster_ledger(self, operation: ClusterOperation) -> Perform:
        """One operation, then the bells it asks for."""
        done = self._commit(
            lambda c: supervise(c, operation, now=self.clock.instant, terms=self.terms)
        )
        if not isinstance(operation, NoteHeartbeat | LookAtBrake):
            self.trace.line("ledger", operation.kind, f"{operation.cluster} {_brief(done.answer)}")
        yield
        self._rings(done.rings)
        return done.answer

    def page_loss(self, ask: PageLoss) -> Perform:
        """Pass after pass, until one finds nobody to tell and no brake to wait for."""
        for _ in range(LOSS_PASSES_MAX):
            page = self._commit(lambda c: loss_page(c, ask.cluster, self.clock.instant))
            yield
            for lost in page.lost:
                yield from self._tell_lost(lost)
            row, braked = self._commit(lambda c: (standing(c, ask.cluster), brake_held(c)))
            reach = Reach.ABSENT if row is None else row.state
            if not page.lost and not (braked and reach is Reach.FENCED):
                return LossPaged(reach=reach)
            for _ in range(LOSS_PASS_STEPS):
                yield
        return LossPaged(reach=None)

    def _tell_lost(self, lost: LostAttempt) -> Perform:
        """A task without a workflow is closed here."""
        place: dict[str, Any] = {"number": lost.number, "cluster": lost.cluster}
        at = self.clock.instant
        message = Fenced(**place, machine=lost.machine, at=at, reason=lost.reason)
        letter = TaskEnvelope(sender="worker", message=message)
        there = self.tell_task(lost.key, letter.model_dump(mode="json"))
        yield
        if there:
            return
        outcome = Outcome(phase=Phase.CANCELLED, reason=Reason.WORKFLOW_GONE, number=lost.number)
        ending = Ending(kind=EndKind.FENCED, reason=lost.reason)
        then = Finish(outcome=outcome)
        yield from self.ledger(Settle(key=lost.key, **place, ending=ending, then=then, at=at))

    def stop_order(self, key: str, cause: StopCause) -> Perform:
        """A preemption or a drain, as later work will write it."""
        cluster = self._commit(lambda c: request_stop(c, key, cause, self.clock.instant))
        yield
        if cluster is not None:
            self.trace.line("ledger", "stop_order", f"{key} {cause}")
            self._hints([cluster])

    # --- shared ---------------------------------------------------------------------------------

    def _commit(self, work: Callable[[Connection], T]) -> T:
        self.writes += 1
        with transaction(self.engine) as connection:
            return work(connection)

    def _rings(self, partitions: Iterable[int]) -> None:
        for partition in sorted(partitions):
            self.ring(partition)

    def _hints(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            letter = ClusterEnvelope(sender="worker", message=DeliveryHint())
            self.tell_cluster(name, letter.model_dump(mode="json"))


def _brief(model: Any) -> str:
    """The fields that say what happened, for the trace."""
    if isinstance(model, OrdersLoaded):
        asked = () if model.delivery is None else model.delivery.orders
        return ", ".join(f"{order.kind} {order.key}#{order.number}" for order in asked)
    said = model.model_dump(mode="json", exclude_defaults=True, exclude={"kind", "spec", "digest"})
    told = {k: v for k, v in said.items() if k not in ("at", "cluster", "not_after")}
    return " ".join(f"{k}={v}" for k, v in told.items()).replace("'", "")
