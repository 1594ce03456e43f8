"""GET /v1/tasks/{team}/{task}/logs: output of attempts, as plain bytes, followed where asked."""

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from api.follow import Wanted, output
from api.logs import Stream
from api.parts import KeyOf, PartsOf
from api.routes.tasks import find
from api.schema import refusals
from domain.errors import InvalidError

OFFSET_MAX = 2**53
ATTEMPT_MAX = 2**31 - 1
MEDIA_TYPE = "text/plain; charset=utf-8"

router = APIRouter(tags=["tasks"])


class Streams(StrEnum):
    """Which output."""

    STDOUT = "stdout"
    STDERR = "stderr"
    BOTH = "both"


_STREAMS: dict[Streams, tuple[Stream, ...]] = {
    Streams.STDOUT: ("stdout",),
    Streams.STDERR: ("stderr",),
    Streams.BOTH: ("stdout", "stderr"),
}


@router.get(
    "/v1/tasks/{team}/{task}/logs",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **refusals(404, 422, 503),
    },
)
async def read_logs(
    key: KeyOf,
    parts: PartsOf,
    stream: Streams = Streams.BOTH,
    attempt: Annotated[int | None, Query(ge=1, le=ATTEMPT_MAX)] = None,
    follow: bool = False,
    offset: Annotated[int, Query(ge=0, le=OFFSET_MAX)] = 0,
) -> Response:
    """Output of the latest attempt, or of `attempt`; `follow` goes on to the end of it, or, without
    `attempt`, of the task. `offset` counts the bytes of one stream of one attempt."""
    if offset and stream is Streams.BOTH:
        raise InvalidError("offset: needs one stream, stdout or stderr")
    view = await find(parts, key)
    wanted = Wanted(key, _STREAMS[stream], attempt, follow, offset)
    chunks = output(parts, wanted, view)
    if follow:
        return StreamingResponse(chunks, media_type=MEDIA_TYPE)
    # Not followed: the first piece is read now, while a refusal can still be an answer.
    first = await anext(chunks, b"")
    return StreamingResponse(_with_first(first, chunks), media_type=MEDIA_TYPE)


async def _with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for chunk in rest:
        yield chunk
