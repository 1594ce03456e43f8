"""The distinct kinds of machines, which submissions are checked against. A cache of a second."""

import time

from api.ledger import LedgerReader
from domain.errors import NeverFitsError
from domain.feasibility import nearest_miss, never_fits
from domain.machine import MachineClass
from domain.shape import shape_digest
from domain.task import TaskSpec
from store.classes import machine_classes

AGE_S_MAX = 1.0


class FleetClasses:
    """Read again when older than a second: a burst of submissions asks the ledger once."""

    def __init__(self, ledger: LedgerReader) -> None:
        self._ledger = ledger
        self._classes: tuple[MachineClass, ...] = ()
        self._read_at = float("-inf")
        self._held: set[str] = set()
        """Shapes that some class of the last reading could hold."""

    async def check(self, spec: TaskSpec) -> None:
        """NeverFitsError when no machine, empty, could hold the task; silent on an empty fleet."""
        if time.monotonic() - self._read_at > AGE_S_MAX:
            self._classes = tuple(await self._ledger.read(machine_classes))
            self._read_at = time.monotonic()
            self._held.clear()
        shape = shape_digest(spec)
        if shape in self._held:
            return
        lost = never_fits(spec, self._classes)
        if lost is None:
            self._held.add(shape)
        else:
            machines = sum(lost.values())
            raise NeverFitsError(
                f"none of {machines} machines could ever hold this task: "
                f"{nearest_miss(spec, self._classes)}",
                lost,
            )
