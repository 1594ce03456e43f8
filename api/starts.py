"""When a running attempt started, asked of its agent: the ledger learns that with the end.

A start that the ledger wrote down would cost each task a write more, for a figure that only people
who look at it need.
"""

from api.parts import Parts, now
from domain.ids import TaskKey, attempt_id
from domain.stamps import shown_span
from domain.supervision import Reach
from domain.views import AttemptView, ClusterView
from store import overview


async def with_start(parts: Parts, key: TaskKey, attempt: AttemptView) -> AttemptView:
    """With its keeper's stamp where it runs; as it stands where nobody can say within a second."""
    if attempt.started_at is not None or attempt.closed or attempt.admitted_at is None:
        return attempt
    cluster: ClusterView | None = await parts.ledger.read(overview.cluster, attempt.cluster)
    if cluster is None or not cluster.http_address or cluster.state is not Reach.REACHABLE:
        return attempt
    name = attempt_id(key, attempt.number)
    stamp = await parts.logs.started(cluster.http_address, name)
    if stamp is None:
        return attempt
    at = now()
    span = shown_span(stamp, at, heard_at=at, placed_at=attempt.placed_at)
    return attempt.model_copy(update={"started_at": span.started_at})
