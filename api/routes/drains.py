"""/v1/machines and /v1/clusters: drain and undrain, a wish told to the cluster's workflow."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query

from api.parts import ClusterName, MachineName, Parts, PartsOf, now
from api.routes.clusters import BY_CHARS_MAX, find_cluster
from api.routes.machines import POLL_S, SHOWN_S_MAX, find_machine
from api.schema import refusals
from domain.errors import NotFoundError
from domain.protocol import DrainMachines
from domain.views import ClusterView, MachineView

DEADLINE_S_MAX = 30 * 86_400

router = APIRouter(tags=["drains"])

View = TypeVar("View", MachineView, ClusterView)
By = Annotated[str, Query(min_length=1, max_length=BY_CHARS_MAX)]
DeadlineS = Annotated[
    int | None,
    Query(
        ge=0,
        le=DEADLINE_S_MAX,
        description="After so many seconds what is left is stopped, whether or not it finds room.",
    ),
]
ANSWERS = refusals(404, 422, 503)


@router.post("/v1/machines/{cluster}/{machine}/drain", status_code=202, responses=ANSWERS)
async def drain_machine(
    cluster: ClusterName,
    machine: MachineName,
    parts: PartsOf,
    by: By = "api",
    deadline_s: DeadlineS = None,
) -> MachineView:
    """No new tasks there; what runs is stopped as it finds room elsewhere, and placed there."""
    await find_machine(parts, cluster, machine)
    await _tell(parts, cluster, (machine,), by, drained=True, deadline_s=deadline_s)
    return await _shown(partial(find_machine, parts, cluster, machine), parts, drained=True)


@router.post("/v1/machines/{cluster}/{machine}/undrain", status_code=202, responses=ANSWERS)
async def undrain_machine(
    cluster: ClusterName, machine: MachineName, parts: PartsOf, by: By = "api"
) -> MachineView:
    """New tasks again (unless it was cordoned before); stops that were not sent are taken back."""
    await find_machine(parts, cluster, machine)
    await _tell(parts, cluster, (machine,), by, drained=False)
    return await _shown(partial(find_machine, parts, cluster, machine), parts, drained=False)


@router.post("/v1/clusters/{cluster}/drain", status_code=202, responses=ANSWERS)
async def drain_cluster(
    cluster: ClusterName, parts: PartsOf, by: By = "api", deadline_s: DeadlineS = None
) -> ClusterView:
    """The same for every machine that the cluster has now, and for those that join it later."""
    await find_cluster(parts, cluster)
    await _tell(parts, cluster, (), by, drained=True, deadline_s=deadline_s)
    return await _shown(partial(find_cluster, parts, cluster), parts, drained=True)


@router.post("/v1/clusters/{cluster}/undrain", status_code=202, responses=ANSWERS)
async def undrain_cluster(cluster: ClusterName, parts: PartsOf, by: By = "api") -> ClusterView:
    """The same for every machine of it that is drained."""
    await find_cluster(parts, cluster)
    await _tell(parts, cluster, (), by, drained=False)
    return await _shown(partial(find_cluster, parts, cluster), parts, drained=False)


async def _tell(
    parts: Parts,
    cluster: str,
    machines: tuple[str, ...],
    by: str,
    *,
    drained: bool,
    deadline_s: int | None = None,
) -> None:
    deadline = None if deadline_s is None else now() + timedelta(seconds=deadline_s)
    wish = DrainMachines(machines=machines, drained=drained, deadline=deadline, by=by)
    if not await parts.gateway.tell_cluster(cluster, wish):
        raise NotFoundError(f"the workflow of cluster {cluster} is not there")


async def _shown(find: Callable[[], Awaitable[View]], parts: Parts, *, drained: bool) -> View:
    """The cluster's workflow writes the row; mostly it has done so within milliseconds."""
    view = await find()
    for _ in range(int(SHOWN_S_MAX / POLL_S)):
        if (view.drain is not None) == drained or parts.closing.begun:
            break
        await parts.closing.sleep(POLL_S)
        view = await find()
    return view
