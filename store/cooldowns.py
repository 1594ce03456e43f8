"""Cool-downs: a cluster that keeps refusing a shape is not offered it for a while."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select

from store.dialects import upsert
from store.mapping import micros
from store.prepared import Prepared
from store.tables import COOLDOWN

REFUSALS_MAX = 3
WITHIN_S = 60
FIRST_STEP_S = 60
STEP_S_MAX = 600
_SECOND = 1_000_000
_COOLING = Prepared(
    select(COOLDOWN.c.cluster, COOLDOWN.c.shape).where(COOLDOWN.c.until > bindparam("now"))
)


def cooling(connection: Connection, now: datetime) -> set[tuple[str, str]]:
    """Cluster and shape of every cool-down that has not ended."""
    rows = _COOLING.rows(connection, {"now": micros(now)})
    return {(row.cluster, row.shape) for row in rows}


def count_refusals(connection: Connection, refused: Sequence[tuple[str, str]], now: int) -> None:
    """Count each; the third within a minute begins a cool-down, twice as long as the last."""
    for (cluster, shape), times in sorted(Counter(refused).items()):
        _count(connection, cluster, shape, times, now)


def _count(connection: Connection, cluster: str, shape: str, times: int, now: int) -> None:
    fresh = upsert(connection, COOLDOWN)
    connection.execute(fresh.values(cluster=cluster, shape=shape))
    mine = (COOLDOWN.c.cluster == cluster) & (COOLDOWN.c.shape == shape)
    row: Any = connection.execute(select(COOLDOWN).where(mine).with_for_update()).one()
    lately = [at for at in json.loads(row.refusals) if now - at <= WITHIN_S * _SECOND]
    lately = [*lately, *([now] * times)][-REFUSALS_MAX:]
    values: dict[str, Any] = {"refusals": json.dumps(lately)}
    if len(lately) == REFUSALS_MAX and row.until <= now:
        again = row.step_s > 0 and now - row.until <= STEP_S_MAX * _SECOND
        step_s = min(2 * row.step_s, STEP_S_MAX) if again else FIRST_STEP_S
        values = {"refusals": "[]", "until": now + step_s * _SECOND, "step_s": step_s}
    connection.execute(COOLDOWN.update().where(mine).values(values))
