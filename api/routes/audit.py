"""/v1/audit: what the last audit has found and what became of it; and an audit now."""

from fastapi import APIRouter

from api.parts import PartsOf
from api.schema import refusals
from domain.audit import AuditReport
from store.differences import report

router = APIRouter(tags=["audit"])


@router.get("/v1/audit", responses=refusals(503))
async def get_audit(parts: PartsOf) -> AuditReport:
    """Claims, quota and what agents report: where they differ, and what was done."""
    return await parts.ledger.read(report)


@router.post("/v1/audit", status_code=202, responses=refusals(503))
async def audit_now(parts: PartsOf) -> AuditReport:
    """Begin one audit more; where one is under way, that one will do. The last report so far."""
    before = await parts.ledger.read(report)
    await parts.gateway.audit_now()
    return before
