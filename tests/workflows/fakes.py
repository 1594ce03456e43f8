"""Recording ports: each answers from a script, and fails when something was not looked at."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from temporalio import activity

from domain.audit import (
    AuditAnswer,
    AuditOperation,
    Conclude,
    Concluded,
    Roll,
    RollAnswer,
    RollCall,
)
from domain.claims import (
    Enqueue,
    Enqueued,
    Finish,
    LedgerAnswer,
    LedgerOperation,
    Settle,
    Settled,
    Withdraw,
    WithdrawAnswer,
    Withdrawn,
)
from domain.partition import GoneTasks, PlaceRounds, RoundsDone
from domain.protocol import (
    Delivery,
    DeliveryAnswer,
    Grant,
    GrantAnswer,
    LiftAnswer,
    LiftMachines,
)
from domain.supervision import (
    BeginGrant,
    BrakeSeen,
    ClusterAnswer,
    ClusterOperation,
    Fence,
    FenceAnswer,
    GrantBegun,
    LeaseTerms,
    LoadOrders,
    LookAtBrake,
    LossPaged,
    MarkSuspect,
    Noted,
    NoteGranted,
    NoteRegistration,
    Open,
    Opened,
    OrdersLoaded,
    PageLoss,
    Reach,
)
from workflows.ports import AgentPort, AuditPort, ClusterPort, LedgerPort, PlacementPort

WAIT_S_MAX = 60

_T = TypeVar("_T")


async def eventually(look: Callable[[], _T], what: str, seconds: float = WAIT_S_MAX) -> _T:
    """The first true answer of `look`; an assertion names what never came."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)


class Recorded:
    """What was asked, in order, until a test has looked at it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def took(self, kind: type[_T]) -> _T:
        """The oldest question not looked at yet; it must be of this kind."""
        assert self.asked, f"nothing was asked, expected {kind.__name__}"
        first = self.asked.pop(0)
        assert isinstance(first, kind), f"expected {kind.__name__}, got {first!r}"
        return first

    def nothing_left(self) -> None:
        """Everything that was asked has been looked at."""
        assert not self.asked, self.asked


class FakeLedger(Recorded, LedgerPort):
    """Says yes to everything, unless an answer was laid out; `down` fails every question."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[type, list[LedgerAnswer]] = {}
        self.down = False
        self.refused = 0
        self.questions = 0

    def will_answer(self, kind: type, *answers: LedgerAnswer) -> None:
        """Instead of yes, in this order."""
        self.answers.setdefault(kind, []).extend(answers)

    @activity.defn
    async def ledger(self, operation: LedgerOperation) -> LedgerAnswer:
        if self.down:
            self.refused += 1
            raise ConnectionError("the ledger is down")
        self.asked.append(operation)
        self.questions += 1
        laid_out = self.answers.get(type(operation))
        if laid_out:
            return laid_out.pop(0)
        match operation:
            case Enqueue():
                return Enqueued(closed=0)
            case Settle(then=Finish(outcome=outcome)):
                return Settled(mine=True, closed=operation.number, final=outcome)
            case Settle():
                return Settled(mine=True, closed=operation.number)
            case Withdraw():
                final = operation.outcome
                return Withdrawn(answer=WithdrawAnswer.WITHDRAWN, final=final)
        raise AssertionError(operation)

    def nothing_left(self) -> None:
        super().nothing_left()
        assert not any(self.answers.values()), self.answers


class FakeRounds(Recorded, PlacementPort):
    """Rounds that find nothing, unless an answer was laid out."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[RoundsDone] = []

    @activity.defn
    async def place_round(self, ask: PlaceRounds) -> RoundsDone:
        self.asked.append(ask)
        return self.answers.pop(0) if self.answers else RoundsDone(rounds=1)

    @activity.defn
    async def close_gone(self, gone: GoneTasks) -> None:
        self.asked.append(gone)


class FakeClusterLedger(Recorded, ClusterPort):
    """One cluster's row, as far as supervision looks at it."""

    def __init__(self, terms: LeaseTerms | None = None) -> None:
        super().__init__()
        self.terms = terms or LeaseTerms()
        self.epoch = 0
        self.reach = Reach.ABSENT
        self.braked = False
        self.orders: list[Delivery] = []
        self.instance = ""

    @activity.defn
    async def cluster_ledger(self, operation: ClusterOperation) -> ClusterAnswer:
        self.asked.append(operation)
        match operation:
            case Open():
                return Opened(
                    terms=self.terms, epoch=self.epoch, reach=self.reach, instance=self.instance
                )
            case NoteRegistration(register_=register):
                self.instance = register.instance
            case NoteGranted():
                self.reach = Reach.REACHABLE
            case MarkSuspect():
                self.reach = Reach.SUSPECT
            case BeginGrant(cluster=cluster):
                self.epoch += 1
                return GrantBegun(grant=Grant(cluster=cluster, epoch=self.epoch, closed=()))
            case LoadOrders():
                return OrdersLoaded(delivery=self.orders.pop(0) if self.orders else None)
            case LookAtBrake():
                return BrakeSeen(braked=self.braked)
            case Fence():
                self.reach = Reach.FENCED
                return FenceAnswer(fenced=True)
        return Noted()

    @activity.defn
    async def page_loss(self, ask: PageLoss) -> LossPaged:
        self.asked.append(ask)
        return LossPaged(reach=self.reach)

    def kinds(self) -> list[str]:
        """What was asked, in short."""
        return [one.kind for one in self.asked]


class FakeAudits(Recorded, AuditPort):
    """Answers in the order laid out; every audit may be concluded."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[AuditAnswer] = []

    @activity.defn
    async def audit_ledger(self, operation: AuditOperation) -> AuditAnswer:
        self.asked.append(operation)
        if isinstance(operation, Conclude):
            return Concluded(run=operation.run)
        return self.answers.pop(0)


class FakeAgent(Recorded, AgentPort):
    """Takes every grant; answers every order as `answer_with` says."""

    def __init__(self, instance: str = "a1") -> None:
        super().__init__()
        self.instance = instance
        self.away_from = ""

    @activity.defn
    async def deliver(self, delivery: Delivery) -> DeliveryAnswer:
        self.asked.append(delivery)
        return DeliveryAnswer(instance=self.instance, epoch=delivery.epoch, answers=())

    @activity.defn
    async def grant(self, grant: Grant) -> GrantAnswer:
        self.asked.append(grant)
        return GrantAnswer(instance=self.instance, epoch=grant.epoch)

    @activity.defn
    async def roll_call(self, call: RollCall) -> RollAnswer:
        if self.away_from == call.cluster:
            raise ConnectionError("this agent is away")
        self.asked.append(call)
        rolls = tuple(Roll(machine=name, attempts=()) for name in call.machines)
        return RollAnswer(instance=self.instance, epoch=1, rolls=rolls)

    @activity.defn
    async def lift_machines(self, lift: LiftMachines) -> LiftAnswer:
        self.asked.append(lift)
        return LiftAnswer(instance=self.instance, lifted=True)
