"""/healthz, /readyz, /metrics: for load balancers and Prometheus."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from api.parts import Parts, PartsOf
from domain.attempt import Phase
from domain.audit import Alarms
from domain.errors import DrystoneError, UnavailableError
from domain.faces import ReadyReport
from store import overview
from store.alarms import alarms as read_alarms

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthy() -> dict[str, str]:
    """This process answers; nothing else is asked."""
    return {"status": "ok"}


@router.get(
    "/readyz", responses={503: {"model": ReadyReport, "description": "Some part is not there."}}
)
async def ready(parts: PartsOf, response: Response) -> ReadyReport:
    """Ledger and Temporal answer. The brake is shown: while it holds nothing is replaced."""
    states: dict[str, str] = {}
    seen: Alarms | None = None
    try:
        seen = await parts.ledger.read(read_alarms)
        states["ledger"] = "ok"
    except UnavailableError as error:
        states["ledger"] = str(error)
    try:
        await parts.gateway.healthy()
        states["temporal"] = "ok"
    except DrystoneError as error:
        states["temporal"] = str(error)
    report = ReadyReport(
        ready=all(state == "ok" for state in states.values()),
        parts=states,
        brake=seen.brake if seen else None,
        alarms=seen.texts if seen else (),
    )
    if not report.ready:
        response.status_code = 503
        response.headers["Retry-After"] = str(parts.settings.retry_after_s)
    return report


@router.get("/metrics", response_class=Response, responses=None)
async def metrics(parts: PartsOf) -> Response:
    """Prometheus text; without the ledger's numbers while the ledger is away."""
    try:
        await _read_gauges(parts)
    except UnavailableError:
        parts.metrics.forget_ledger()
    return Response(parts.metrics.text(), media_type=CONTENT_TYPE_LATEST)


async def _read_gauges(parts: Parts) -> None:
    gauges = parts.metrics
    counts = await parts.ledger.read(overview.phase_counts)
    for phase in Phase:
        gauges.tasks.labels(phase.value).set(counts.get(phase, 0))
    clusters = await parts.ledger.read(overview.clusters)
    gauges.clusters.clear()
    for cluster in clusters:
        gauges.clusters.labels(cluster.state.value).inc()
    gauges.machines.set(sum(cluster.machines for cluster in clusters))
    seen = await parts.ledger.read(read_alarms)
    gauges.brake.set(seen.brake.held)
    gauges.alarms.show(seen)
