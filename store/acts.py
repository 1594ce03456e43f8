"""Words of operators that changed what the system may conclude: written down, never changed."""

from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select

from domain.audit import OperatorAct
from store.mapping import instant, micros
from store.tables import OPERATOR_ACT

ACTS_KEPT_MAX = 10_000
ACTS_SHOWN_MAX = 50


def note_act(connection: Connection, by: str, act: str, subject: str, now: datetime) -> None:
    """Who said what about what; the same word of the same instant once."""
    row = {"at": micros(now), "by": by, "act": act, "subject": subject}
    known = select(OPERATOR_ACT.c.seq).where(*(OPERATOR_ACT.c[n] == v for n, v in row.items()))
    if connection.scalar(known) is not None:
        return
    connection.execute(insert(OPERATOR_ACT).values(row))
    newest = connection.scalar(select(func.max(OPERATOR_ACT.c.seq))) or 0
    old = OPERATOR_ACT.c.seq <= newest - ACTS_KEPT_MAX
    connection.execute(delete(OPERATOR_ACT).where(old))


def acts(connection: Connection, limit: int = ACTS_SHOWN_MAX) -> tuple[OperatorAct, ...]:
    """The newest first."""
    rows = select(OPERATOR_ACT).order_by(OPERATOR_ACT.c.seq.desc()).limit(limit)
    return tuple(
        OperatorAct(at=instant(row.at), by=row.by, act=row.act, subject=row.subject)
        for row in connection.execute(rows)
    )
