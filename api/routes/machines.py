"""/v1/machines: what there is, what is used of it, cordon and uncordon."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.parts import ClusterName, MachineName, Parts, PartsOf
from api.routes.tasks import CURSOR_CHARS_MAX, PAGE_ROWS, PAGE_ROWS_MAX
from api.schema import refusals
from domain.errors import NotFoundError
from domain.faces import MachinePage
from domain.headroom import Headroom
from domain.ids import Name
from domain.protocol import CordonMachines
from domain.views import MachineView
from store import overview
from store.headroom import headroom

SHOWN_S_MAX = 2.0
"""How long an answer waits for its own effect to be seen."""
POLL_S = 0.05

router = APIRouter(tags=["machines"])


@router.get("/v1/machines", response_model=MachinePage, responses=refusals(422, 503))
async def list_machines(
    parts: PartsOf,
    cluster: Annotated[Name | None, Query()] = None,
    cursor: Annotated[str | None, Query(max_length=CURSOR_CHARS_MAX)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS,
) -> Response:
    """One page of machines, by cluster and name."""
    found = await parts.ledger.read(
        overview.machines, cluster=cluster, after=cursor or "", limit=limit
    )
    more = len(found) == limit
    page = MachinePage(
        items=found, cursor=f"{found[-1].cluster}/{found[-1].name}" if more else None
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/v1/headroom", response_model=Headroom, responses=refusals(503))
async def get_headroom(parts: PartsOf) -> Response:
    """What is free on all machines, and how much of it is of use to what waits."""
    found = await parts.ledger.read(headroom)
    return Response(found.model_dump_json(), media_type="application/json")


@router.get(
    "/v1/machines/{cluster}/{machine}",
    response_model=MachineView,
    responses=refusals(404, 422, 503),
)
async def get_machine(cluster: ClusterName, machine: MachineName, parts: PartsOf) -> MachineView:
    """One machine."""
    return await find_machine(parts, cluster, machine)


@router.post(
    "/v1/machines/{cluster}/{machine}/cordon",
    status_code=202,
    response_model=MachineView,
    responses=refusals(404, 422, 503),
)
async def cordon(cluster: ClusterName, machine: MachineName, parts: PartsOf) -> MachineView:
    """No new tasks there; what runs goes on."""
    return await _set_cordon(parts, cluster, machine, cordoned=True)


@router.post(
    "/v1/machines/{cluster}/{machine}/uncordon",
    status_code=202,
    response_model=MachineView,
    responses=refusals(404, 422, 503),
)
async def uncordon(cluster: ClusterName, machine: MachineName, parts: PartsOf) -> MachineView:
    """New tasks again."""
    return await _set_cordon(parts, cluster, machine, cordoned=False)


async def _set_cordon(parts: Parts, cluster: str, machine: str, *, cordoned: bool) -> MachineView:
    view = await find_machine(parts, cluster, machine)
    message = CordonMachines(machines=(machine,), cordoned=cordoned, by="api")
    if not await parts.gateway.tell_cluster(cluster, message):
        raise NotFoundError(f"the workflow of cluster {cluster} is not there")
    # The cluster's workflow writes the row; most of the time it has done so within milliseconds.
    for _ in range(int(SHOWN_S_MAX / POLL_S)):
        view = await find_machine(parts, cluster, machine)
        if view.cordoned == cordoned or parts.closing.begun:
            break
        await parts.closing.sleep(POLL_S)
    return view


async def find_machine(parts: Parts, cluster: str, machine: str) -> MachineView:
    """The machine's row; else NotFoundError."""
    view = await parts.ledger.read(overview.machine, cluster, machine)
    if view is None:
        raise NotFoundError(f"there is no machine {machine} in cluster {cluster}")
    return view
