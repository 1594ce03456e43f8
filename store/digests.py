"""Claims compared with what the agent says it runs: a difference makes the ledger ask about them.

A report that Temporal took and no workflow ever read (it was terminated first) is lost; the agent,
asked about its attempt, sends it again, and now learns that the workflow is gone.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from domain.ids import attempt_hash
from domain.protocol import RunningDigest
from store.lines import OfferState
from store.locking import rows_by_key
from store.mapping import micros, place_of
from store.prepared import Prepared, one_of
from store.tables import CLAIM, HELD

DOUBT_AFTER_S = 30
"""A younger claim may differ only because its news is on the way."""
INQUIRIES_MAX = 200
"""So many at a time; the others with a later heartbeat."""

_THERE = Prepared(
    select(
        *(CLAIM.c.attempt, CLAIM.c.place, CLAIM.c.state, CLAIM.c.claimed_at),
        *(CLAIM.c.to_deliver, CLAIM.c.vouched),
    )
    .where(one_of(CLAIM.c.place))
    .where(HELD)
)
_SOME = CLAIM.c.attempt.in_(bindparam("keys", expanding=True))
_LOCK = select(CLAIM.c.attempt).where(_SOME).order_by(CLAIM.c.attempt).with_for_update()
_ASK = update(CLAIM).where(_SOME).where(HELD).values(inquiry=1, to_deliver=1)


def inquire(
    connection: Connection, cluster: str, running: Sequence[RunningDigest], now: datetime
) -> int:
    """Ask about old claims that do not fit the digests of their machines; how many."""
    digests = {place_of(cluster, digest.machine): digest for digest in running}
    claims: dict[str, list[Any]] = defaultdict(list)
    for row in rows_by_key(connection, _THERE, digests):
        claims[row.place].append(row)
    before = micros(now) - DOUBT_AFTER_S * 1_000_000
    doubtful: list[str] = []
    for place, rows in sorted(claims.items()):
        fits = _fits(digests[place], rows)
        doubtful += [
            row.attempt
            for row in rows
            if row.claimed_at < before and not row.to_deliver and not (fits and _admitted(row))
        ]
    asked = sorted(doubtful)[:INQUIRIES_MAX]
    if asked:
        connection.execute(_LOCK, {"keys": asked})
        connection.execute(_ASK, {"keys": asked})
    return len(asked)


def _fits(digest: RunningDigest, rows: Sequence[Any]) -> bool:
    """What the agent counts is what it has admitted and not given up."""
    count = xor = 0
    for row in rows:
        if _admitted(row) and not row.vouched:
            count, xor = count + 1, xor ^ attempt_hash(row.attempt)
    return (count, xor) == (digest.count, digest.xor)


def _admitted(row: Any) -> bool:
    return bool(row.state == OfferState.ADMITTED)
