"""The ledger as cluster supervision sees it: each question is one transaction.

Decides nothing: `domain.cluster` asked, `store.supervision` answers. Rings follow the commit.
"""

import asyncio
import time
from datetime import UTC, datetime

from sqlalchemy import Connection
from temporalio import activity

from activities.gathering import gather_s
from activities.losses import Losses
from activities.notices import Notices
from activities.writer import LedgerWriter
from domain.supervision import (
    BrakeTerms,
    ClusterAnswer,
    ClusterOperation,
    LeaseTerms,
    LoadOrders,
    LossPaged,
    NoteAnswers,
    Noted,
    OrdersLoaded,
    PageLoss,
)
from store.supervision import Supervised, supervise
from workflows.ports import ClusterPort

GATHER_S_MAX = 0.5
"""Between two deliveries to one cluster."""


class Clusters(ClusterPort):
    """Writes through the process's one writer."""

    def __init__(
        self,
        terms: LeaseTerms,
        offer_deadline_s: float,
        writer: LedgerWriter,
        notices: Notices,
        losses: Losses,
        brake: BrakeTerms | None = None,
    ) -> None:
        self._terms = terms
        self._offer_deadline_s = offer_deadline_s
        self._writer = writer
        self._notices = notices
        self._losses = losses
        self._brake = brake or BrakeTerms()
        self._not_before: dict[str, float] = {}
        """By cluster: until when its next delivery gathers orders."""

    @activity.defn
    async def cluster_ledger(self, operation: ClusterOperation) -> ClusterAnswer:
        """Carry out one operation."""

        def work(connection: Connection) -> Supervised:
            return supervise(
                connection,
                operation,
                now=datetime.now(UTC),
                terms=self._terms,
                offer_deadline_s=self._offer_deadline_s,
                brake=self._brake,
            )

        if isinstance(operation, LoadOrders):
            await self._gathered(operation.cluster)
        done = await self._writer.run(work)
        self._notices.ring(done.rings)
        if isinstance(done.answer, OrdersLoaded):
            self._gather(operation.cluster, done.answer)
        return self._with_hints(operation, done.answer)

    async def _gathered(self, cluster: str) -> None:
        """Hints that come meanwhile are answered by what is loaded then."""
        self._notices.loading(cluster)
        await asyncio.sleep(self._not_before.get(cluster, 0.0) - time.monotonic())
        self._notices.loading(cluster)

    def _gather(self, cluster: str, loaded: OrdersLoaded) -> None:
        orders = 0 if loaded.delivery is None or loaded.full else len(loaded.delivery.orders)
        self._not_before[cluster] = time.monotonic() + gather_s(orders, GATHER_S_MAX)

    def _with_hints(self, operation: ClusterOperation, answer: ClusterAnswer) -> ClusterAnswer:
        """A hint that was held back while a delivery was out goes with the answer."""
        match operation, answer:
            case LoadOrders(cluster=cluster), OrdersLoaded(delivery=None):
                if self._notices.delivered(cluster):
                    self._notices.hint([cluster])
            case NoteAnswers(cluster=cluster), Noted():
                return answer.model_copy(update={"news": self._notices.delivered(cluster)})
        return answer

    @activity.defn
    async def page_loss(self, ask: PageLoss) -> LossPaged:
        """Close what the row says is lost, and tell its tasks until all have settled."""
        return await self._losses.page(ask.cluster)
