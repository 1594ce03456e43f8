"""One ledger transaction as a unit: rows are locked, changed in memory, and written together.

The order in which rows are locked, so that no two transactions ever wait for each other in a ring:
brake, cluster, tasks, claims, machines, usage, cool-downs, partitions; within a table, by key.
Knows no rule of the ledger: those are in `store.transitions`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, select

from domain.ids import attempt_id
from store.lines import ClaimLine, TaskLine
from store.prepared import KEYS, Prepared, one_of
from store.room import Room
from store.tables import CLAIM, TASK

KEYS_PER_TRANSACTION_MAX = 10_000

_TASK_FIELDS = [f.name for f in fields(TaskLine) if f.name != "changed"]
_CLAIM_FIELDS = [f.name for f in fields(ClaimLine) if f.name != "changed"]
_PEEK_TASKS = Prepared(select(TASK.c.key).where(one_of(TASK.c.key)))
_LOCK_TASKS = Prepared(
    select(*(TASK.c[name] for name in _TASK_FIELDS))
    .where(one_of(TASK.c.key))
    .order_by(TASK.c.key)
    .with_for_update(key_share=True)
)
_LOCK_CLAIMS = Prepared(
    select(*(CLAIM.c[name] for name in _CLAIM_FIELDS))
    .where(one_of(CLAIM.c.attempt))
    .order_by(CLAIM.c.attempt)
    .with_for_update(key_share=True)
)


def rows_by_key(
    connection: Connection, statement: Prepared, keys: Collection[str]
) -> Sequence[Any]:
    """The rows of a statement with a `one_of`; none for no keys."""
    assert len(keys) <= KEYS_PER_TRANSACTION_MAX, len(keys)
    if not keys:
        return ()
    return statement.rows(connection, {KEYS: sorted(keys)})


def tuples_by_key(
    connection: Connection, statement: Prepared, keys: Collection[str]
) -> Sequence[Any]:
    """The same as the driver has them, for many rows that are taken apart at once."""
    assert len(keys) <= KEYS_PER_TRANSACTION_MAX, len(keys)
    if not keys:
        return ()
    return statement.tuples(connection, {KEYS: sorted(keys)})


class Work:
    """The rows of one transaction. Load first, then change, then `store.writing.write` once."""

    def __init__(self, connection: Connection, now: int) -> None:
        self.connection = connection
        self.now = now
        self.tasks: dict[str, TaskLine] = {}
        self.claims: dict[str, ClaimLine] = {}
        self.new_claims: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.used: dict[str, Room] = {}
        """By place: what is to be added to the machine's used columns."""
        self.charged: dict[str, Room] = {}
        """By team: what is to be added to its usage."""
        self.woken: set[int] = set()
        """Partitions that have new work."""
        self.room_freed = False
        self.ordered: set[str] = set()
        """Clusters with new orders to deliver."""
        self.refused: list[tuple[str, str]] = []
        """Cluster and shape of each refusal."""

    def peek_tasks(self, keys: Collection[str]) -> set[str]:
        """Which of these exist, without a lock."""
        return {row.key for row in rows_by_key(self.connection, _PEEK_TASKS, keys)}

    def lock_tasks(self, keys: Collection[str]) -> None:
        """Lock the rows that exist, in the order of their keys."""
        for row in rows_by_key(self.connection, _LOCK_TASKS, keys):
            line = TaskLine(*row)
            self.tasks[line.key] = line

    def lock_claims(self, attempts: Collection[str]) -> None:
        """Lock these claims; their tasks are locked already, or are not going to be."""
        for row in rows_by_key(self.connection, _LOCK_CLAIMS, attempts):
            line = ClaimLine(*row)
            self.claims[line.attempt] = line

    def lock_current(self, keys: Collection[str], attempts: Iterable[str] = ()) -> None:
        """Lock tasks with the claims of their last numbers, and further claims of theirs."""
        self.lock_tasks(keys)
        current = {attempt_id(t.key, t.number) for t in self.tasks.values() if t.number}
        self.lock_claims({*current, *attempts})

    def claim_of(self, task: TaskLine) -> ClaimLine:
        """The open claim of a claimed task."""
        claim = self.claims[attempt_id(task.key, task.number)]
        assert task.claimed, task
        assert claim.open, claim
        return claim

    def take_room(self, place: str, room: Room, sign: int) -> None:
        """Add a claim's room to its machine, or give it back with sign -1."""
        self.used.setdefault(place, Room()).add(room, sign)
        self.room_freed = self.room_freed or sign < 0

    def charge(self, team: str, room: Room, sign: int) -> None:
        """Add a claim to its team's usage, or take it off with sign -1."""
        self.charged.setdefault(team, Room()).add(room, sign)
