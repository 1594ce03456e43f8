"""Paging of a loss: close what the row says is lost, tell the tasks, again until all have settled.

Which numbers may be closed is decided by `store.losses`, page by page, under the row's lock.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection
from temporalio import activity

from activities.notices import Notices
from activities.writer import LedgerWriter
from domain.attempt import Ending, EndKind, Outcome, Phase
from domain.claims import Finish, Settle
from domain.protocol import Fenced
from domain.reasons import Reason
from domain.supervision import LossPaged, Reach
from store.brake import brake_held
from store.losses import LossPage, LostAttempt, loss_page
from store.overview import cluster as cluster_view
from workflows.options import LOSS_PASSES_MAX

PASS_S = 2.0
"""Between two passes: a task that was told needs a moment to settle."""


@dataclass(slots=True)
class Losses:
    """Told in pages of `page_tasks`, each at most `page_tasks / tasks_per_s` seconds long."""

    writer: LedgerWriter
    notices: Notices
    page_tasks: int
    tasks_per_s: int

    async def page(self, cluster: str) -> LossPaged:
        """Pass after pass, until one finds nobody to tell and no brake to wait for."""
        told = gone = 0
        for number in range(LOSS_PASSES_MAX):
            found, missing = await self._pass(cluster)
            told += found
            gone += missing
            reach, braked = await self.writer.run(lambda c: (_reach(c, cluster), brake_held(c)))
            if found == 0 and not (braked and reach is Reach.FENCED):
                return LossPaged(reach=reach, told=told, gone=gone)
            activity.heartbeat(number)
            await asyncio.sleep(PASS_S)
        return LossPaged(reach=None, told=told, gone=gone)

    async def _pass(self, cluster: str) -> tuple[int, int]:
        """Everybody once: how many were told, and how many of them have no workflow."""
        told = gone = 0
        after: str | None = ""
        while after is not None:
            began = asyncio.get_running_loop().time()
            page = await self._read(cluster, after)
            missing = await asyncio.gather(*(self._tell(one) for one in page.lost))
            told += len(page.lost)
            gone += sum(missing)
            after = page.after
            activity.heartbeat(after)
            took = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(0.0, len(page.lost) / self.tasks_per_s - took))
        return told, gone

    async def _read(self, cluster: str, after: str) -> LossPage:
        return await self.writer.run(
            lambda c: loss_page(c, cluster, datetime.now(UTC), after=after, limit=self.page_tasks)
        )

    async def _tell(self, lost: LostAttempt) -> bool:
        """True when there was no workflow: then its row is closed here."""
        now = datetime.now(UTC)
        message = Fenced(
            number=lost.number,
            cluster=lost.cluster,
            machine=lost.machine,
            at=now,
            reason=lost.reason,
        )
        if await self.notices.tell_task(lost.key, message):
            return False
        outcome = Outcome(phase=Phase.CANCELLED, reason=Reason.WORKFLOW_GONE, number=lost.number)
        closed = Settle(
            key=lost.key,
            number=lost.number,
            cluster=lost.cluster,
            ending=Ending(kind=EndKind.FENCED, reason=lost.reason),
            then=Finish(outcome=outcome),
            at=now,
        )
        await self.writer.apply(closed)
        return True


def _reach(connection: Connection, cluster: str) -> Reach:
    row = cluster_view(connection, cluster)
    return Reach.ABSENT if row is None else row.state
