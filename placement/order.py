"""Who goes first: the more important band, then whoever has waited longest. Knows no machine."""

from collections.abc import Iterable

from domain.fleet import PendingTask


def in_order(pending: Iterable[PendingTask]) -> list[PendingTask]:
    """By band, then by time of enqueueing, then by key: the order of rows does not matter."""
    return sorted(pending, key=lambda task: (int(task.band), task.enqueued_at, task.key))
