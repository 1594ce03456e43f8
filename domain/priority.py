"""Priority bands: who goes before whom. Knows nothing of room or quota."""

from enum import IntEnum


class Band(IntEnum):
    """The five bands; the smaller number is the more important. Compare only by `outranks`."""

    CRITICAL = 0
    HIGH = 100
    NORMAL = 200
    LOW = 300
    PREEMPTIBLE = 400


def outranks(one: Band, other: Band) -> bool:
    """True when `one` is strictly more important than `other`."""
    return int(one) < int(other)
