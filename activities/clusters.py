"""The ledger as cluster supervision sees it: each question is one transaction.

Decides nothing: `domain.cluster` asked, `store.supervision` answers. Rings follow the commit.
"""

from datetime import UTC, datetime

from sqlalchemy import Connection
from temporalio import activity

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
            self._notices.loading(operation.cluster)
        done = await self._writer.run(work)
        self._notices.ring(done.rings)
        return self._with_hints(operation, done.answer)

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
