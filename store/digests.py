"""Claims compared with what the agent says it runs: a difference makes the ledger ask about them.

What runs without any claim cannot be asked about: its machine is marked, for the auditor to read
the agent's list of it.

A report that Temporal took and no workflow ever read (it was terminated first) is lost; the agent,
asked about its attempt, sends it again, and now learns that the workflow is gone.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from domain.ids import attempt_hash
from domain.protocol import RunningDigest
from store.dialects import upsert
from store.lines import OfferState
from store.locking import rows_by_key
from store.mapping import micros, place_of
from store.prepared import Prepared, one_of
from store.tables import CLAIM, DOUBTFUL_MACHINE, HELD, MACHINE

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
_DOUBTED = Prepared(
    select(DOUBTFUL_MACHINE.c.place).where(DOUBTFUL_MACHINE.c.cluster == bindparam("cluster"))
)
_KNOWN = Prepared(select(MACHINE.c.place).where(one_of(MACHINE.c.place)))
_SOME = CLAIM.c.attempt.in_(bindparam("keys", expanding=True))
_LOCK = select(CLAIM.c.attempt).where(_SOME).order_by(CLAIM.c.attempt).with_for_update()
_ASK = update(CLAIM).where(_SOME).where(HELD).values(inquiry=1, to_deliver=1)


def inquire(
    connection: Connection, cluster: str, running: Sequence[RunningDigest], now: datetime
) -> int:
    """Ask about old claims that do not fit the digests of their machines; how many.

    A machine whose digest does not fit, though nothing is on the way to it, is doubted until a
    later digest or the auditor finds that all is well.
    """
    digests = {place_of(cluster, digest.machine): digest for digest in running}
    claims: dict[str, list[Any]] = defaultdict(list)
    for row in rows_by_key(connection, _THERE, digests):
        claims[row.place].append(row)
    before = micros(now) - DOUBT_AFTER_S * 1_000_000
    doubtful: list[str] = []
    doubts: dict[str, bool] = {}
    for place, digest in sorted(digests.items()):
        rows = claims.get(place, [])
        fits = _fits(digest, rows)
        quiet = all(row.claimed_at < before and not row.to_deliver for row in rows)
        if fits or quiet or digest.count > len(rows):
            doubts[place] = not fits
        doubtful += [
            row.attempt
            for row in rows
            if row.claimed_at < before and not row.to_deliver and not (fits and _admitted(row))
        ]
    if doubts:
        _note_doubts(connection, cluster, doubts, micros(now))
    asked = sorted(doubtful)[:INQUIRIES_MAX]
    if asked:
        connection.execute(_LOCK, {"keys": asked})
        connection.execute(_ASK, {"keys": asked})
    return len(asked)


def machine_agrees(connection: Connection, place: str) -> None:
    """A look at the agent's own list has shown that all is well."""
    connection.execute(delete(DOUBTFUL_MACHINE).where(DOUBTFUL_MACHINE.c.place == place))


def _note_doubts(connection: Connection, cluster: str, doubts: dict[str, bool], now: int) -> None:
    known = {row.place for row in _DOUBTED.rows(connection, {"cluster": cluster})}
    fresh = [place for place, doubted in doubts.items() if doubted and place not in known]
    over = [place for place, doubted in doubts.items() if not doubted and place in known]
    there = rows_by_key(connection, _KNOWN, fresh)  # A digest may come before its machine.
    if there:
        values = [{"place": row.place, "cluster": cluster, "since": now} for row in there]
        connection.execute(upsert(connection, DOUBTFUL_MACHINE), values)
    if over:
        connection.execute(delete(DOUBTFUL_MACHINE).where(DOUBTFUL_MACHINE.c.place.in_(over)))


def _fits(digest: RunningDigest, rows: Sequence[Any]) -> bool:
    """What the agent counts is what it has admitted and not given up."""
    count = xor = 0
    for row in rows:
        if _admitted(row) and not row.vouched:
            count, xor = count + 1, xor ^ attempt_hash(row.attempt)
    return (count, xor) == (digest.count, digest.xor)


def _admitted(row: Any) -> bool:
    return bool(row.state == OfferState.ADMITTED)
