"""/v1/clusters and /v1/brake: reachability, leases, an operator's word that a cluster is lost."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.parts import ClusterName, Parts, PartsOf, now
from api.schema import refusals
from domain.errors import ConflictError, NotFoundError
from domain.faces import ClusterPage
from domain.protocol import ConfirmLost
from domain.supervision import Reach
from domain.views import BrakeView, ClusterView
from store import overview
from store.brake import brake

BY_CHARS_MAX = 200

router = APIRouter(tags=["clusters"])


@router.get("/v1/clusters", responses=refusals(422, 503))
async def list_clusters(parts: PartsOf) -> ClusterPage:
    """All clusters."""
    return ClusterPage(items=tuple(await parts.ledger.read(overview.clusters)))


@router.get("/v1/clusters/{cluster}", responses=refusals(404, 422, 503))
async def get_cluster(cluster: ClusterName, parts: PartsOf) -> ClusterView:
    """One cluster."""
    return await find_cluster(parts, cluster)


@router.post(
    "/v1/clusters/{cluster}/confirm-lost", status_code=202, responses=refusals(404, 409, 422, 503)
)
async def confirm_lost(
    cluster: ClusterName,
    parts: PartsOf,
    by: Annotated[str, Query(min_length=1, max_length=BY_CHARS_MAX)],
) -> ClusterView:
    """Vouch that nothing of this cluster runs any more: who says so is written down."""
    view = await find_cluster(parts, cluster)
    if view.state is Reach.REACHABLE:
        raise ConflictError(f"cluster {cluster} answers: it is not lost")
    if not await parts.gateway.tell_cluster(cluster, ConfirmLost(by=by, at=now())):
        raise NotFoundError(f"the workflow of cluster {cluster} is not there")
    return view


@router.get("/v1/brake", responses=refusals(503))
async def get_brake(parts: PartsOf) -> BrakeView:
    """The stop on mass replacement."""
    return await parts.ledger.read(brake)


async def find_cluster(parts: Parts, cluster: str) -> ClusterView:
    """The cluster's row; else NotFoundError."""
    view = await parts.ledger.read(overview.cluster, cluster)
    if view is None:
        raise NotFoundError(f"there is no cluster {cluster}")
    return view
