"""GET /v1/tasks/{team}/{task}/logs: output of attempts, plain or framed, followed where asked."""

import base64
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from api.follow import Piece, Wanted, output
from api.logs import Stream
from api.parts import KeyOf, PartsOf
from api.routes.tasks import find
from api.schema import refusals
from domain.errors import DrystoneError, InvalidError
from domain.faces import OutputPiece, gap_line, missing_bytes

OFFSET_MAX = 2**53
ATTEMPT_MAX = 2**31 - 1
ACCEPT_CHARS_MAX = 1_000
PLAIN = "text/plain; charset=utf-8"
FRAMED = "application/x-ndjson"

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
        200: {
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                FRAMED: {"schema": {"type": "string"}},
            }
        },
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
    accept: Annotated[str, Header(max_length=ACCEPT_CHARS_MAX)] = PLAIN,
) -> Response:
    """Output of the latest attempt, or of `attempt`; `follow` goes on to the end of it, or, without
    `attempt`, of the task. `offset` counts the bytes of one stream of one attempt. With `Accept:
    application/x-ndjson` each line is an OutputPiece: which attempt, which stream, how many bytes
    are missing. As plain text a line of its own says how many bytes are missing there."""
    if offset and stream is Streams.BOTH:
        raise InvalidError("offset: needs one stream, stdout or stderr")
    view = await find(parts, key)
    pieces = output(parts, Wanted(key, _STREAMS[stream], attempt, follow, offset), view)
    if not follow:
        # The first piece is read now, while a refusal can still be an answer.
        first = await anext(pieces, None)
        pieces = _with_first(first, pieces)
    if FRAMED in accept:
        return StreamingResponse(_framed(pieces), media_type=FRAMED)
    return StreamingResponse(_plain(pieces), media_type=PLAIN)


async def _with_first(first: Piece | None, rest: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    if first is not None:
        yield first
        async for piece in rest:
            yield piece


async def _plain(pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        gap = missing_bytes(piece.attempt, piece.stream, piece.first, piece.missing)
        if gap:
            yield gap_line(gap)
        if piece.data:
            yield piece.data


async def _framed(pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    number = 0
    try:
        async for piece in pieces:
            number = piece.attempt
            yield _line(
                OutputPiece(
                    attempt=piece.attempt,
                    place=piece.place,
                    stream=piece.stream,
                    first=piece.first,
                    missing=piece.missing,
                    data=base64.b64encode(piece.data).decode(),
                )
            )
    except DrystoneError as error:
        # The answer has begun: what would have been a refusal is its last line.
        yield _line(OutputPiece(attempt=number, cut=str(error)))
        return
    yield _line(OutputPiece(attempt=number, end=True))


def _line(piece: OutputPiece) -> bytes:
    return piece.model_dump_json(exclude_defaults=True).encode() + b"\n"
