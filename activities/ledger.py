"""The ledger as tasks see it: one operation each, many in one commit."""

from temporalio import activity

from activities.writer import LedgerWriter
from domain.claims import LedgerAnswer, LedgerOperation
from workflows.ports import LedgerPort


class Ledger(LedgerPort):
    """Writes through the process's one writer, which also rings and hints after the commit."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer

    @activity.defn
    async def ledger(self, operation: LedgerOperation) -> LedgerAnswer:
        """Carry out one operation."""
        return await self._writer.apply(operation)
