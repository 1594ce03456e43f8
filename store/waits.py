"""Why a task has waited so far: the verdicts that are kept, for readers."""

from sqlalchemy import Connection, select

from domain.views import VerdictView
from store.tables import TASK
from store.verdicts import read_verdicts


def verdict_history(connection: Connection, key: str) -> tuple[VerdictView, ...]:
    """The last verdicts of a task as they changed, oldest first, earlier waits included."""
    return read_verdicts(connection.scalar(select(TASK.c.verdict).where(TASK.c.key == key)))
