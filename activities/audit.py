"""The ledger as the auditor sees it: pages are read beside the writer, what is written is short.

Decides nothing: what differs stands in `store.audit` and `store.rolls`, how it is healed in
`store.mending`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError
from temporalio import activity

from activities.notices import Notices
from activities.writer import LedgerWriter
from domain.audit import (
    AuditAnswer,
    AuditOperation,
    Certainty,
    Compare,
    Compared,
    Conclude,
    Concluded,
    Fault,
    Sweep,
    Swept,
)
from domain.protocol import ReRead, StopOrder
from runtime.telemetry import logger
from store.audit import ENDED_PART, PARTS, ROWS_MAX, Page, page, snapshot
from store.differences import (
    Seen,
    after_task,
    begin_run,
    conclude,
    end_run,
    goes_on_after,
    ledger_subjects,
    looked,
    note_seen,
    report,
)
from store.mending import Mended, Mending, mend
from store.rolls import agents_agree, compare, roll_calls
from store.session import reading
from workflows.options import AUDIT_SWEEP_S_MAX
from workflows.ports import AuditPort

_BEYOND_MENDING = (AssertionError, LookupError, ValueError, IntegrityError)
"""Rows that contradict each other in ways nobody has thought of: named, and left to a person."""

_T = TypeVar("_T")


@dataclass(slots=True)
class _Tally:
    found: int = 0
    healed: int = 0


class Audits(AuditPort):
    """One process's part in audits."""

    def __init__(
        self, engine: Engine, writer: LedgerWriter, notices: Notices, look_again_s: float
    ) -> None:
        self._engine = engine
        self._writer = writer
        self._notices = notices
        self._look_again_s = look_again_s

    @activity.defn
    async def audit_ledger(self, operation: AuditOperation) -> AuditAnswer:
        """Carry out one operation."""
        match operation:
            case Sweep():
                return await self._sweep(operation)
            case Compare():
                return await self._compare(operation)
            case Conclude():
                return await self._conclude(operation)
        raise AssertionError(operation)

    # --- looking ---

    async def _sweep(self, ask: Sweep) -> Swept:
        """Pages until the time is up or all parts are looked at."""
        loop = asyncio.get_running_loop()
        until = loop.time() + AUDIT_SWEEP_S_MAX
        run = ask.run or await self._writer.run(lambda c: begin_run(c, _now()))
        part, after, doubts, rows = ask.part, ask.after, 0, 0
        while part < len(PARTS) and loop.time() < until:
            shown = await self._page(part, after)
            rows += shown.rows
            doubts += await self._note(run, shown)
            part, after = (part, shown.after) if shown.after else (part + 1, "")
            activity.heartbeat(part, after)
        await self._writer.run(lambda c: looked(c, run, rows))
        if part < len(PARTS):
            return Swept(run=run, part=part, after=after, doubts=doubts)
        calls = await self._read(roll_calls)
        return Swept(run=run, doubts=doubts, calls=calls, look_again_s=self._look_again_s)

    async def _page(self, part: int, after: str) -> Page:
        """The tasks that have ended are many: the next audit goes on where this one stops."""
        if part != ENDED_PART:
            return await self._read(lambda c: page(c, part, after, ROWS_MAX[part]))
        shown = await self._read(lambda c: page(c, part, after_task(c), ROWS_MAX[part]))
        await self._writer.run(lambda c: goes_on_after(c, shown.after or ""))
        return replace(shown, after=None)

    async def _note(self, run: int, shown: Page) -> int:
        if not shown.differences:
            return 0
        seen = [Seen(difference) for difference in shown.differences]
        return await self._writer.run(lambda c: note_seen(c, run, seen, _now()))

    async def _compare(self, ask: Compare) -> Compared:
        done = await self._writer.run(
            lambda c: compare(c, ask.run, ask.cluster, ask.answer, _now(), again=ask.again)
        )
        self._notices.ring(done.rings)
        self._notices.hint(done.clusters)
        nobody = [order for order in done.unknown if not await self._workflow_told(order)]
        return Compared(machines=done.again, stops=(*done.stops, *nobody))

    async def _workflow_told(self, order: StopOrder) -> bool:
        """It writes its row again. False: no workflow waits for this attempt."""
        return await self._notices.tell_task(order.key, ReRead())

    # --- healing ---

    async def _conclude(self, ask: Conclude) -> Concluded:
        tally = _Tally()
        for fault, subject in await self._read(ledger_subjects):
            await self._mend(fault, subject, tally)
            activity.heartbeat(subject)

        def end(connection: Connection) -> int:
            agents_agree(connection, ask.run, _now())
            end_run(connection, ask.run, ask.machines_asked, ask.clusters_unheard, _now())
            standing = report(connection).standing
            return sum(one.certainty is Certainty.STANDING for one in standing)

        standing = await self._writer.run(end)
        if standing:
            logger().error("the audit finds differences", standing=standing, run=ask.run)
        return Concluded(run=ask.run, found=tally.found, healed=tally.healed, standing=standing)

    async def _mend(self, fault: Fault, subject: str, tally: _Tally) -> None:
        def work(connection: Connection) -> tuple[Mended, Mending]:
            mending = mend(connection, fault, subject, _now())
            return conclude(connection, fault, subject, mending, _now()), mending

        try:
            mended, mending = await self._writer.run(work)
        except _BEYOND_MENDING as error:
            text = f"cannot be mended: {type(error).__name__}: {error}"[:500]
            stands = Mending(Mended.NOT, text)
            await self._writer.run(lambda c: conclude(c, fault, subject, stands, _now()))
            return
        self._notices.ring(mending.rings)
        self._notices.hint(mending.clusters)
        if mended is not Mended.AGREES:
            tally.found += 1
            tally.healed += mended is Mended.DONE
            logger().error("difference", fault=fault, subject=subject, healing=mending.how)

    async def _read(self, reader: Callable[[Connection], _T]) -> _T:
        """In one snapshot, beside the writer."""

        def within() -> _T:
            with reading(self._engine) as connection:
                snapshot(connection)
                return reader(connection)

        return await asyncio.to_thread(within)


def _now() -> datetime:
    return datetime.now(UTC)
