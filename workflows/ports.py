"""The activities that workflows need, as abstract classes; one per collaborator.

Bodies stand in activities/ and agent/, made in a composition root. Each is idempotent by its input.
"""

from abc import ABC, abstractmethod

from temporalio import activity

from domain.audit import (
    AuditAnswer,
    AuditOperation,
    RollAnswer,
    RollCall,
)
from domain.claims import LedgerAnswer, LedgerOperation
from domain.partition import GoneTasks, PlaceRounds, RoundsDone
from domain.protocol import (
    Delivery,
    DeliveryAnswer,
    Grant,
    GrantAnswer,
    LiftAnswer,
    LiftMachines,
)
from domain.supervision import ClusterAnswer, ClusterOperation, LossPaged, PageLoss


class LedgerPort(ABC):
    """The ledger, as tasks see it."""

    @activity.defn
    @abstractmethod
    async def ledger(self, operation: LedgerOperation) -> LedgerAnswer:
        """Carry out one operation; where that woke a partition or a cluster, tell it."""


class PlacementPort(ABC):
    """Rounds of one partition."""

    @activity.defn
    @abstractmethod
    async def place_round(self, ask: PlaceRounds) -> RoundsDone:
        """Rounds while there is work."""

    @activity.defn
    @abstractmethod
    async def close_gone(self, gone: GoneTasks) -> None:
        """Close the rows of tasks whose workflows do not exist any more."""


class ClusterPort(ABC):
    """The ledger, as clusters see it, and the paging of a loss."""

    @activity.defn
    @abstractmethod
    async def cluster_ledger(self, operation: ClusterOperation) -> ClusterAnswer:
        """Carry out one operation."""

    @activity.defn
    @abstractmethod
    async def page_loss(self, ask: PageLoss) -> LossPaged:
        """Close what the row says is lost, and tell its tasks until all have settled."""


class AgentPort(ABC):
    """The agent of one cluster, served on its own task queue."""

    @activity.defn
    @abstractmethod
    async def deliver(self, delivery: Delivery) -> DeliveryAnswer:
        """Take offers and stop orders, and say of each what was done."""

    @activity.defn
    @abstractmethod
    async def grant(self, grant: Grant) -> GrantAnswer:
        """Begin a lease."""

    @activity.defn
    @abstractmethod
    async def roll_call(self, call: RollCall) -> RollAnswer:
        """Say which attempts are held on these machines."""

    @activity.defn
    @abstractmethod
    async def lift_machines(self, lift: LiftMachines) -> LiftAnswer:
        """Lift the brake on losses of machines."""


class AuditPort(ABC):
    """The ledger, as the auditor sees it."""

    @activity.defn
    @abstractmethod
    async def audit_ledger(self, operation: AuditOperation) -> AuditAnswer:
        """Carry out one operation."""
