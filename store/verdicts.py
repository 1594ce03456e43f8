"""Why tasks wait: the last verdict of each, with a short history, written only when it changes."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from domain.attempt import Phase
from domain.verdict import Verdict
from domain.views import VerdictView
from store.bulk import ChangeByKey
from store.locking import rows_by_key
from store.mapping import instant, micros
from store.prepared import Prepared, one_of
from store.tables import TASK

KEPT_MAX = 5
REFRESH_S = 10
"""The same reasons with other numbers are written at most so often."""

# That the row still waits is not asked here: SQLite would go through all that wait to find them.
_ROWS = select(TASK.c.key, TASK.c.phase, TASK.c.verdict).where(one_of(TASK.c.key))
_SAID = Prepared(_ROWS)
_LOCK = Prepared(
    _ROWS.order_by(TASK.c.key)
    # A row that somebody holds is left for the next round: its verdict is worth no waiting, and
    # this may come after locks that are further on in the order of `store.locking`.
    .with_for_update(key_share=True, skip_locked=True)
)
_UPDATE = ChangeByKey(TASK, "key", sets=["verdict"])


def record_verdicts(connection: Connection, verdicts: Mapping[str, Verdict], now: datetime) -> int:
    """Write those that say something new of a row that still waits; how many were written."""
    at = micros(now)
    # Tasks of one shape share their verdict: it is written out once.
    distinct = {id(verdict): verdict for verdict in verdicts.values()}
    bodies = {name: verdict.model_dump(mode="json") for name, verdict in distinct.items()}
    ends = {name: _as_last(body) for name, body in bodies.items()}
    news = [
        row.key
        for row in rows_by_key(connection, _SAID, verdicts)
        if row.phase == Phase.PENDING
        and not (row.verdict and row.verdict.endswith(ends[id(verdicts[row.key])]))
    ]
    changes = []
    for row in rows_by_key(connection, _LOCK, news):
        if row.phase != Phase.PENDING:
            continue
        history = json.loads(row.verdict) if row.verdict else []
        after = _appended(history, bodies[id(verdicts[row.key])], at)
        if after is not None:
            changes.append((_text(after), row.key))
    _UPDATE.run(connection, changes)
    return len(changes)


def read_verdicts(text: str | None) -> tuple[VerdictView, ...]:
    """The history, oldest first."""
    entries = json.loads(text) if text else []
    return tuple(
        VerdictView(at=instant(entry["at"]), verdict=Verdict.model_validate(entry["verdict"]))
        for entry in entries
    )


def _as_last(body: Any) -> str:
    """How a history ends in which this is the last verdict."""
    return _text([{"verdict": body}]).removeprefix("[{")


def _text(history: list[Any]) -> str:
    return json.dumps(history, separators=(",", ":"))


def _appended(history: list[Any], body: Any, at: int) -> list[Any] | None:
    """The new history; None when there is nothing new to say."""
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
