"""Does the ledger add up? Compares sums with what they are sums of. Reads only, heals nothing.

In pages, each bounded and each in one snapshot: whoever reads a page takes it in a transaction of
its own (`snapshot`), so that what is in flight elsewhere is seen whole or not at all.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, or_, select, tuple_, union

from domain.attempt import Phase
from domain.audit import Fault
from domain.ids import attempt_id, split_attempt_id
from domain.resources import COLUMNS
from store.lines import Standing
from store.locking import KEYS_PER_TRANSACTION_MAX, rows_by_key
from store.machines import CAPACITY
from store.prepared import Prepared, one_of
from store.room import Room
from store.tables import CLAIM, HELD, MACHINE, TASK, TO_DELIVER, USAGE
from store.writing import USED

PAGE_ROWS_MAX = 500
ROWS_MAX = (PAGE_ROWS_MAX, 5_000, PAGE_ROWS_MAX, PAGE_ROWS_MAX, PAGE_ROWS_MAX, 5_000)
"""By part. Each page of teams reads every claim once; of the ended tasks there is one page."""
ENDED_PART = 5
_WHOLE = 1_000_000_000

CLAIMED = (Phase.OFFERED, Phase.RUNNING, Phase.STOPPING)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that should not be, and where."""

    fault: Fault
    subject: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Page:
    """What a page has shown; `after`: where the next one begins, None when this was the last."""

    differences: list[Difference]
    rows: int
    after: str | None


def snapshot(connection: Connection) -> None:
    """The first statement of a reading transaction whose statements must see one instant."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def audit(connection: Connection) -> list[Difference]:
    """Every difference; none is how it always is between transactions."""
    return [
        difference
        for part in range(len(PARTS))
        for difference in page(connection, part, limit=_WHOLE).differences
    ]


def page(connection: Connection, part: int, after: str = "", limit: int = PAGE_ROWS_MAX) -> Page:
    """The next rows of one part (an index of PARTS)."""
    return PARTS[part](connection, after, limit)


# --- machines -----------------------------------------------------------------------------------

_SUMS = [func.coalesce(func.sum(CLAIM.c[name]), 0).label(name) for name in COLUMNS]
_HOLDS_ROOM = or_(CLAIM.c.standing == Standing.OPEN.value, CLAIM.c.vouched == 0)
_MACHINES = Prepared(
    select(*(MACHINE.c[name] for name in ("place", *USED, "used_extra", *CAPACITY, "cap_extra")))
    .add_columns(MACHINE.c.shrunk)
    .where(MACHINE.c.place > bindparam("after"))
    .order_by(MACHINE.c.place)
    .limit(bindparam("limit"))
)
_ROOM_SUMS = Prepared(
    select(CLAIM.c.place.label("name"), *_SUMS)
    .where(one_of(CLAIM.c.place))
    .where(HELD)
    .where(_HOLDS_ROOM)
    .group_by(CLAIM.c.place)
)
_ROOM_EXTRAS = Prepared(
    select(CLAIM.c.place.label("name"), CLAIM.c.extra)
    .where(one_of(CLAIM.c.place))
    .where(HELD)
    .where(_HOLDS_ROOM)
    .where(CLAIM.c.extra.is_not(None))
)


def room_sums(connection: Connection, places: Sequence[str]) -> Mapping[str, Room]:
    """What the claims of each machine hold together."""
    return _sums(connection, _ROOM_SUMS, _ROOM_EXTRAS, places)


def _machines(connection: Connection, after: str, limit: int) -> Page:
    rows = _MACHINES.rows(connection, {"after": after, "limit": limit})
    sums = room_sums(connection, [row.place for row in rows])
    found = []
    for row in rows:
        used = room_of(row, USED, row.used_extra)
        if room_text(used) != room_text(sums[row.place]):
            fault = Fault.USED_IS_NOT_THE_SUM
            texts = room_text(sums[row.place]), room_text(used)
            found.append(Difference(fault, row.place, *texts))
        capacity = room_of(row, CAPACITY, row.cap_extra)
        if not row.shrunk and not Room().holds(used, capacity):
            texts = room_text(capacity), room_text(used)
            found.append(Difference(Fault.OVER_CAPACITY, row.place, *texts))
    return _page(found, rows, limit, "place")


# --- teams --------------------------------------------------------------------------------------

_OPEN = CLAIM.c.standing == Standing.OPEN.value
_NAMED = union(select(USAGE.c.team), select(CLAIM.c.team).where(HELD).where(_OPEN)).subquery()
_TEAMS = Prepared(
    select(_NAMED.c.team)
    .where(_NAMED.c.team > bindparam("after"))
    .order_by(_NAMED.c.team)
    .limit(bindparam("limit"))
)
_USAGE = Prepared(
    select(USAGE.c.team, *(USAGE.c[name] for name in COLUMNS), USAGE.c.extra).where(
        one_of(USAGE.c.team)
    )
)
_QUOTA_SUMS = Prepared(
    select(CLAIM.c.team.label("name"), *_SUMS)
    .where(HELD)
    .where(_OPEN)
    .where(one_of(CLAIM.c.team))
    .group_by(CLAIM.c.team)
)
_QUOTA_EXTRAS = Prepared(
    select(CLAIM.c.team.label("name"), CLAIM.c.extra)
    .where(HELD)
    .where(_OPEN)
    .where(one_of(CLAIM.c.team))
    .where(CLAIM.c.extra.is_not(None))
)


def quota_sums(connection: Connection, teams: Sequence[str]) -> Mapping[str, Room]:
    """What the open claims of each team hold together."""
    return _sums(connection, _QUOTA_SUMS, _QUOTA_EXTRAS, teams)


def _teams(connection: Connection, after: str, limit: int) -> Page:
    rows = _TEAMS.rows(connection, {"after": after, "limit": limit})
    teams = [row.team for row in rows]
    sums = quota_sums(connection, teams)
    charged: dict[str, Room] = defaultdict(Room)
    for row in rows_by_key(connection, _USAGE, teams):
        charged[row.team] = room_of(row, COLUMNS, row.extra)
    found = [
        Difference(
            Fault.QUOTA_IS_NOT_THE_SUM, team, room_text(sums[team]), room_text(charged[team])
        )
        for team in teams
        if room_text(sums[team]) != room_text(charged[team])
    ]
    return _page(found, rows, limit, "team")


# --- tasks and the claims of their numbers ------------------------------------------------------

_LIVE_TASKS = Prepared(
    select(TASK.c.key, TASK.c.number, TASK.c.phase, TASK.c.enqueued_at)
    .where(TASK.c.phase == bindparam("phase"))
    .where(tuple_(TASK.c.enqueued_at, TASK.c.key) > tuple_(bindparam("since"), bindparam("after")))
    .order_by(TASK.c.enqueued_at, TASK.c.key)
    .limit(bindparam("limit"))
)
_STANDINGS = Prepared(
    select(CLAIM.c.attempt, CLAIM.c.standing).where(one_of(CLAIM.c.attempt)).where(_OPEN)
)
_OPEN_CLAIMS = Prepared(
    select(CLAIM.c.attempt, CLAIM.c.cluster, CLAIM.c.key, CLAIM.c.number)
    .where(HELD)
    .where(_OPEN)
    .where(
        tuple_(CLAIM.c.cluster, CLAIM.c.attempt) > tuple_(bindparam("cluster"), bindparam("after"))
    )
    .order_by(CLAIM.c.cluster, CLAIM.c.attempt)
    .limit(bindparam("limit"))
)
_TASKS = Prepared(select(TASK.c.key, TASK.c.number, TASK.c.phase).where(one_of(TASK.c.key)))


def _live_tasks(connection: Connection, after: str, limit: int) -> Page:
    """By phase, then age: the index of the task list serves, and what has ended is not touched."""
    phase, since, key = _cursor(after, CLAIMED[0].value, "-1", "")
    given = {"phase": phase, "since": int(since), "after": key, "limit": limit}
    rows = _LIVE_TASKS.rows(connection, given)
    wanted = {attempt_id(row.key, row.number): row for row in rows}
    there = {row.attempt for row in _by_pieces(connection, _STANDINGS, list(wanted))}
    found = [
        Difference(Fault.CLAIMED_WITHOUT_OPEN_CLAIM, row.key, attempt, "no open claim")
        for attempt, row in wanted.items()
        if attempt not in there
    ]
    if len(rows) == limit:
        next_page: str | None = f"{phase} {rows[-1].enqueued_at} {rows[-1].key}"
    else:
        later = [p.value for p in CLAIMED if list(CLAIMED).index(p) > _index(phase)]
        next_page = f"{later[0]} -1 " if later else None
    if limit == _WHOLE and next_page is not None:
        rest = _live_tasks(connection, next_page, limit)
        return Page(found + rest.differences, len(rows) + rest.rows, None)
    return Page(found, len(rows), next_page)


def _index(phase: str) -> int:
    return [claimed.value for claimed in CLAIMED].index(phase)


def _open_claims(connection: Connection, after: str, limit: int) -> Page:
    cluster, attempt, _ = _cursor(after, "", "", "")
    given = {"cluster": cluster, "after": attempt, "limit": limit}
    rows = _OPEN_CLAIMS.rows(connection, given)
    keys = {row.key for row in rows}
    tasks = {row.key: row for row in _by_pieces(connection, _TASKS, sorted(keys))}
    found = []
    for row in rows:
        task = tasks[row.key]
        claimed = task.phase in CLAIMED
        if not claimed or task.number != row.number:
            expected = attempt_id(task.key, task.number) if claimed else f"none: {task.phase}"
            fault = Fault.OPEN_CLAIM_OF_ANOTHER_NUMBER
            found.append(Difference(fault, row.key, expected, row.attempt))
    more = len(rows) == limit
    return Page(found, len(rows), f"{rows[-1].cluster} {rows[-1].attempt} " if more else None)


# --- what has ended -----------------------------------------------------------------------------

_RESTLESS = Prepared(
    select(CLAIM.c.attempt)
    .where(TO_DELIVER)
    .where(CLAIM.c.standing == Standing.RELEASED.value)
    .where(CLAIM.c.attempt > bindparam("after"))
    .order_by(CLAIM.c.attempt)
    .limit(bindparam("limit"))
)
_ENDS = Prepared(
    select(TASK.c.key, TASK.c.phase, TASK.c.outcome.is_not(None).label("has_outcome"))
    .where(TASK.c.key > bindparam("after"))
    .order_by(TASK.c.key)
    .limit(bindparam("limit"))
)


def _restless(connection: Connection, after: str, limit: int) -> Page:
    rows = _RESTLESS.rows(connection, {"after": after, "limit": limit})
    fault = Fault.DELIVERS_WHAT_IS_RELEASED
    found = [Difference(fault, row.attempt, "no order", "an order") for row in rows]
    return _page(found, rows, limit, "attempt")


def _ends(connection: Connection, after: str, limit: int) -> Page:
    """Of all tasks, by key; so many that an audit looks at a slice of them only."""
    rows = _ENDS.rows(connection, {"after": after, "limit": limit})
    found = []
    for row in rows:
        final = Phase(row.phase).final
        if final != bool(row.has_outcome):
            texts = ("an outcome" if final else "no outcome", row.phase)
            found.append(Difference(Fault.FINAL_WITHOUT_OUTCOME, row.key, *texts))
    return _page(found, rows, limit, "key")


PARTS: Sequence[Callable[[Connection, str, int], Page]] = (
    _machines,
    _teams,
    _live_tasks,
    _open_claims,
    _restless,
    _ends,
)
"""In the order in which an audit goes through them; `_ends` is ENDED_PART."""
assert PARTS[ENDED_PART] is _ends
assert len(PARTS) == len(ROWS_MAX)


# --- small things -------------------------------------------------------------------------------


def key_of(difference: Difference) -> str:
    """The task that it is about, where it is about one."""
    if difference.fault is Fault.DELIVERS_WHAT_IS_RELEASED:
        return split_attempt_id(difference.subject)[0]
    return difference.subject


def room_of(row: Any, columns: tuple[str, ...], extra: str | None) -> Room:
    """What these columns of a row hold."""
    cpu_milli, memory_mib, gpu, disk_mib, net_mbps = (int(getattr(row, name)) for name in columns)
    return Room.of_row((cpu_milli, memory_mib, gpu, disk_mib, net_mbps), extra)


def room_text(room: Room) -> str:
    """To be compared and shown: quantities that are there, in base units."""
    named = dict(zip(COLUMNS, room.vector, strict=True)) | dict(sorted(room.amounts().items()))
    return " ".join(f"{name}={amount}" for name, amount in named.items() if amount) or "nothing"


def _sums(
    connection: Connection, sums: Prepared, extras: Prepared, names: Sequence[str]
) -> Mapping[str, Room]:
    found: dict[str, Room] = defaultdict(Room)
    for row in _by_pieces(connection, sums, names):
        found[row.name] = room_of(row, COLUMNS, None)
    for row in _by_pieces(connection, extras, names):
        found[row.name].add(Room.of_row((0, 0, 0, 0, 0), row.extra))
    return found


def _by_pieces(connection: Connection, statement: Prepared, names: Sequence[str]) -> Iterable[Any]:
    for first in range(0, len(names), KEYS_PER_TRANSACTION_MAX):
        some = names[first : first + KEYS_PER_TRANSACTION_MAX]
        yield from rows_by_key(connection, statement, some)


def _page(found: list[Difference], rows: Sequence[Any], limit: int, column: str) -> Page:
    more = len(rows) == limit
    return Page(found, len(rows), str(getattr(rows[-1], column)) if more else None)


def _cursor(after: str, *first: str) -> Sequence[str]:
    """Parts of a cursor; names and phases hold no spaces."""
    return after.split(" ", len(first) - 1) if after else first
