"""The OpenAPI document is true: whatever it allows is answered, and never with a fault of ours."""

import asyncio
from collections import Counter
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, given, settings

from domain.audit import AUDIT_SCHEDULE
from tests.api.conftest import Desk
from worker.schedule import keep_audit_schedule

EXAMPLES = 12
PATIENT = ("wait", "follow")
"""They wait for as long as they are told: see the other tests."""
OPERATIONS = 22
"""Routes of the document, so that none is lost unseen."""


async def test_generated_requests_are_never_a_fault_of_ours(desk: Desk) -> None:
    document = (await desk.http.get("/openapi.json")).json()
    schema = schemathesis.openapi.from_dict(document)
    loop = asyncio.get_running_loop()
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    assert len(operations) >= OPERATIONS
    await keep_audit_schedule(desk.temporal, desk.settings)  # As a worker's process does.
    try:
        for operation in operations:
            codes = Counter[int]()
            await asyncio.to_thread(_try, operation, desk, loop, codes)
            print(operation.method, operation.path, dict(codes))
    finally:
        await desk.temporal.get_schedule_handle(AUDIT_SCHEDULE).delete()


def _try(operation: Any, desk: Desk, loop: asyncio.AbstractEventLoop, codes: Counter[int]) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        answer = asyncio.run_coroutine_threadsafe(_send(case, desk), loop).result(60)
        codes[answer.status_code] += 1
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)
        known = {str(code) for code in operation.definition.raw["responses"]}
        assert str(answer.status_code) in known, (case.as_curl_command(), answer.text)

    check()


async def _send(case: Any, desk: Desk) -> httpx.Response:
    sent = case.as_transport_kwargs(base_url="http://drystone")
    query = {
        name: value for name, value in (sent.get("params") or {}).items() if name not in PATIENT
    }
    return await desk.http.request(
        sent["method"],
        sent["url"],
        params=query,
        headers=sent.get("headers"),
        json=sent.get("json"),
    )
