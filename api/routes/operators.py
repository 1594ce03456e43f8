"""Words of operators: lifting a brake, and that a machine is lost. Who says so is written down."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from api.parts import ClusterName, MachineName, Parts, PartsOf, now
from api.routes.clusters import BY_CHARS_MAX, find_cluster
from api.schema import refusals
from domain.errors import ConflictError, NotFoundError
from domain.protocol import ClusterMessage, ConfirmLost, LiftBrake
from domain.supervision import Reach
from domain.views import BrakeView, ClusterView, MachineView
from store import overview
from store.brake import brake

SHOWN_S_MAX = 2.0
"""How long an answer waits for its own effect to be seen."""
POLL_S = 0.05
TOLD_MAX = 20
"""Any cluster's workflow can lift the brake; so many are tried."""

router = APIRouter(tags=["operators"])
By = Annotated[str, Query(min_length=1, max_length=BY_CHARS_MAX)]


@router.post("/v1/brake/lift", status_code=202, responses=refusals(404, 422, 503))
async def lift_brake(parts: PartsOf, by: By) -> BrakeView:
    """The silent clusters are taken to be lost one by one, each after a wait that starts anew.

    It holds again with the next cluster that falls silent, where so many are then.
    """
    view = await parts.ledger.read(brake)
    if not view.held:
        return view
    clusters = await parts.ledger.read(overview.clusters)
    silent_first = sorted(clusters, key=lambda cluster: cluster.state is Reach.REACHABLE)
    lift = LiftBrake(brake="clusters", by=by, at=now())
    for cluster in silent_first[:TOLD_MAX]:
        if await parts.gateway.tell_cluster(cluster.name, lift):
            return await _lifted(parts)
    raise NotFoundError("no cluster's workflow is there to lift it")


@router.post(
    "/v1/clusters/{cluster}/brake/lift", status_code=202, responses=refusals(404, 422, 503)
)
async def lift_machines(cluster: ClusterName, parts: PartsOf, by: By) -> ClusterView:
    """Its agent gives silent machines up again, each after a wait that starts anew."""
    view = await find_cluster(parts, cluster)
    await _tell(parts, cluster, LiftBrake(brake="machines", by=by, at=now()))
    for _ in range(int(SHOWN_S_MAX / POLL_S)):
        if view.machines_braked_since is None:
            break
        await asyncio.sleep(POLL_S)
        view = await find_cluster(parts, cluster)
    return view


@router.post(
    "/v1/machines/{cluster}/{machine}/confirm-lost",
    status_code=202,
    responses=refusals(404, 409, 422, 503),
)
async def confirm_machine_lost(
    cluster: ClusterName, machine: MachineName, parts: PartsOf, by: By
) -> MachineView:
    """Vouch that nothing of this machine runs any more: its work may be started elsewhere."""
    view = await parts.ledger.read(overview.machine, cluster, machine)
    if view is None:
        raise NotFoundError(f"there is no machine {machine} in cluster {cluster}")
    if view.reachable:
        raise ConflictError(f"machine {machine} of cluster {cluster} answers: it is not lost")
    await _tell(parts, cluster, ConfirmLost(machine=machine, by=by, at=now()))
    return view


async def _tell(parts: Parts, cluster: str, message: ClusterMessage) -> None:
    if not await parts.gateway.tell_cluster(cluster, message):
        raise NotFoundError(f"the workflow of cluster {cluster} is not there")


async def _lifted(parts: Parts) -> BrakeView:
    """The workflow writes the row; most of the time it has done so within milliseconds."""
    view = await parts.ledger.read(brake)
    for _ in range(int(SHOWN_S_MAX / POLL_S)):
        if not view.held:
            break
        await asyncio.sleep(POLL_S)
        view = await parts.ledger.read(brake)
    return view
