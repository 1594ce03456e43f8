"""The bell of each partition: idle, rung or busy. Who must ring, and when a round may go to sleep.

`wakes` counts every reason to look again (new work, freed room). A round reads it before it reads
anything else, and may go idle only while it has not moved: so no reason is ever slept through. A
ring that was not answered in time counts as never made.
"""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection, bindparam, exists, select, update

from store.dialects import prepared_upsert
from store.mapping import micros
from store.prepared import KEYS, Prepared, one_of
from store.tables import PARTITION, PENDING, TASK

RUNG_S_MAX = 1
"""A ring without an answer for so long counts as not made."""
BUSY_S_MAX = 5
"""A busy partition without a round for so long counts as asleep."""
WAITING_S_MAX = 10
"""A sleeping partition with rows that are due is looked at so often, to be safe."""
_SECOND = 1_000_000


class Bell(StrEnum):
    """Whether somebody is, or is about to be, at work for the partition."""

    IDLE = "idle"
    RUNG = "rung"
    BUSY = "busy"


_WAITING = Prepared(
    select(PARTITION.c.number).where(
        exists()
        .where(TASK.c.partition == PARTITION.c.number)
        .where(PENDING)
        .where(TASK.c.not_before <= bindparam("now"))
    )
)
_LOCK = Prepared(
    select(PARTITION)
    .where(one_of(PARTITION.c.number))
    .order_by(PARTITION.c.number)
    .with_for_update(key_share=True)
)
_SET = Prepared(
    update(PARTITION)
    .where(PARTITION.c.number == bindparam("b_number"))
    .values(bell=bindparam("b_bell"), wakes=bindparam("b_wakes"), at=bindparam("b_at"))
)
_ADD = prepared_upsert(PARTITION, ("number", "bell", "at"))


def ring(connection: Connection, woken: Collection[int], *, room_freed: bool, now: int) -> set[int]:
    """Count a wake for these partitions, and with freed room for every one with waiting rows.

    The answer: those whose bell the caller must ring. The last lock of any transaction.
    """
    numbers = set(woken)
    if room_freed:
        numbers |= _waiting(connection, now)
    return _wake(connection, numbers, now)


def ring_waiting(connection: Connection, now: datetime) -> set[int]:
    """Room has come: a machine, the end of a cordon, a cool-down or a suspicion."""
    return ring(connection, (), room_freed=True, now=micros(now))


def ring_if_needed(connection: Connection, now: datetime) -> set[int]:
    """Partitions with rows that are due where nobody has answered a ring or run a round in time."""
    at = micros(now)
    waiting = _waiting(connection, at)
    if not waiting:
        return set()
    rows = _LOCK.rows(connection, {KEYS: sorted(waiting)})
    asleep = [row.number for row in rows if _unheard(row.bell, row.at, at)]
    return _wake(connection, asleep, at)


def bell_busy(connection: Connection, partition: int, now: datetime) -> int:
    """A place_round begins. The answer goes to `bell_idle` unless a round is made first."""
    _ensure(connection, [partition], micros(now))
    return _at_work(connection, partition, now)


def bell_round(connection: Connection, partition: int, now: datetime) -> int:
    """A round begins, before it reads any row. The answer goes to `bell_idle`."""
    return _at_work(connection, partition, now)


def bell_idle(connection: Connection, partition: int, wakes: int, now: datetime) -> bool:
    """Go to sleep, unless there was a reason to look again since `wakes` was read."""
    row = _LOCK.rows(connection, {KEYS: [partition]})[0]
    if row.wakes != wakes:
        return False
    _set(connection, partition, Bell.IDLE, row.wakes, micros(now))
    return True


def _at_work(connection: Connection, partition: int, now: datetime) -> int:
    row = _LOCK.rows(connection, {KEYS: [partition]})[0]
    _set(connection, partition, Bell.BUSY, row.wakes, micros(now))
    return int(row.wakes)


def _waiting(connection: Connection, now: int) -> set[int]:
    return {row.number for row in _WAITING.rows(connection, {"now": now})}


def _wake(connection: Connection, numbers: Collection[int], now: int) -> set[int]:
    if not numbers:
        return set()
    rows = _LOCK.rows(connection, {KEYS: sorted(numbers)})
    if len(rows) < len(set(numbers)):
        _ensure(connection, numbers, now)
        rows = _LOCK.rows(connection, {KEYS: sorted(numbers)})
    rung = {row.number for row in rows if row.bell == Bell.IDLE or _unheard(row.bell, row.at, now)}
    _SET.run_many(
        connection,
        [
            {
                "b_number": row.number,
                "b_bell": Bell.RUNG.value if row.number in rung else row.bell,
                "b_wakes": row.wakes + 1,
                "b_at": now if row.number in rung else row.at,
            }
            for row in rows
        ],
    )
    return rung


def _unheard(bell: str, at: int, now: int) -> bool:
    patience = {Bell.IDLE: WAITING_S_MAX, Bell.RUNG: RUNG_S_MAX, Bell.BUSY: BUSY_S_MAX}
    return now - at >= patience[Bell(bell)] * _SECOND


def _ensure(connection: Connection, numbers: Collection[int], now: int) -> None:
    _ADD.run_many(
        connection, [{"number": n, "bell": Bell.IDLE.value, "at": now} for n in sorted(numbers)]
    )


def _set(connection: Connection, partition: int, bell: Bell, wakes: int, at: int) -> None:
    values = {"b_number": partition, "b_bell": bell.value, "b_wakes": wakes, "b_at": at}
    _SET.run(connection, values)
