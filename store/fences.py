"""The mark on claims whose numbers may be closed without an ending, and how it is taken back."""

from sqlalchemy import Connection, select, update

from domain.reasons import Reason
from store.tables import CLAIM, HELD


def unfence(connection: Connection, cluster: str, *reasons: Reason) -> None:
    """Open numbers of this cluster that were marked for these reasons are good again.

    A number that its workflow has closed meanwhile stays closed.
    """
    marked = (
        select(CLAIM.c.attempt)
        .where(CLAIM.c.cluster == cluster)
        .where(HELD)
        .where(CLAIM.c.standing == "open")
        .where(CLAIM.c.fenced.in_([reason.value for reason in reasons]))
        .order_by(CLAIM.c.attempt)
        .with_for_update(key_share=True)
    )
    attempts = list(connection.scalars(marked))
    if attempts:
        good = update(CLAIM).where(CLAIM.c.attempt.in_(attempts)).where(CLAIM.c.standing == "open")
        connection.execute(good.values(fenced=None, vouched=0))
