"""Why tasks wait: the last verdict of each, with a short history, written only when it changes."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from domain.verdict import Verdict
from domain.views import VerdictView
from store.locking import rows_by_key
from store.mapping import instant, micros
from store.prepared import Prepared, one_of
from store.tables import PENDING, TASK

KEPT_MAX = 5
REFRESH_S = 10
"""The same reasons with other numbers are written at most so often."""

_LOCK = Prepared(
    select(TASK.c.key, TASK.c.verdict)
    .where(one_of(TASK.c.key))
    .where(PENDING)
    .order_by(TASK.c.key)
    # A row that somebody holds is left for the next round: its verdict is worth no waiting, and
    # this may come after locks that are further on in the order of `store.locking`.
    .with_for_update(key_share=True, skip_locked=True)
)
_UPDATE = Prepared(
    update(TASK).where(TASK.c.key == bindparam("b_key")).values(verdict=bindparam("b_verdict"))
)


def record_verdicts(connection: Connection, verdicts: Mapping[str, Verdict], now: datetime) -> int:
    """Write those that say something new of a row that still waits; how many were written."""
    at = micros(now)
    changes = []
    for row in rows_by_key(connection, _LOCK, verdicts):
        history = json.loads(row.verdict) if row.verdict else []
        after = _appended(history, verdicts[row.key], at)
        if after is not None:
            text = json.dumps(after, separators=(",", ":"))
            changes.append({"b_key": row.key, "b_verdict": text})
    if changes:
        _UPDATE.run_many(connection, changes)
    return len(changes)


def read_verdicts(text: str | None) -> tuple[VerdictView, ...]:
    """The history, oldest first."""
    entries = json.loads(text) if text else []
    return tuple(
        VerdictView(at=instant(entry["at"]), verdict=Verdict.model_validate(entry["verdict"]))
        for entry in entries
    )


def _appended(history: list[Any], verdict: Verdict, at: int) -> list[Any] | None:
    """The new history; None when there is nothing new to say."""
    body = verdict.model_dump(mode="json")
    if history:
        last = history[-1]
        if last["verdict"] == body:
            return None
        if _reasons(last["verdict"]) == _reasons(body):
            if at - last["seen"] < REFRESH_S * 1_000_000:
                return None
            # Only the numbers have changed: since when it waits for these reasons stays.
            return [*history[:-1], {"at": last["at"], "seen": at, "verdict": body}]
    return [*history, {"at": at, "seen": at, "verdict": body}][-KEPT_MAX:]


def _reasons(body: Any) -> tuple[str, tuple[str, ...]]:
    return body["reason"], tuple(sorted(body["lost"]))
