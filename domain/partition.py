"""What a PlacementWorkflow asks for, and what rounds answer. Knows nothing of rows or machines."""

from datetime import datetime

from pydantic import BaseModel, Field

from domain.ids import TaskKey

GONE_KEYS_MAX = 500
"""Keys of tasks without a workflow that wait to be closed; more come again with the next round."""


class PlaceRounds(BaseModel, frozen=True):
    """Go on with rounds while there is work."""

    partition: int = Field(ge=0)


class RoundsDone(BaseModel, frozen=True):
    """`more`: stopped for its time limit, not for want of work. `next_due`: when a row is due."""

    rounds: int = 0
    placed: int = 0
    conflicts: int = 0
    """Claims that the ledger refused, because somebody else had been faster."""
    more: bool = False
    next_due: datetime | None = None


class GoneTasks(BaseModel, frozen=True):
    """Their workflows do not exist any more: close their rows."""

    keys: tuple[TaskKey, ...] = Field(max_length=GONE_KEYS_MAX)


class PartitionState(BaseModel, frozen=True):
    """What a PlacementWorkflow carries through continue-as-new; rows are read again anyway."""

    rounds: int = 0
    placed: int = 0
    conflicts: int = 0
    misfits: int = 0
    gone: tuple[TaskKey, ...] = ()
