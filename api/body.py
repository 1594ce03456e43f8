"""Reads a request's body up to a limit. What is longer is answered 413, never kept in memory."""

import asyncio

from fastapi import Request
from starlette.requests import ClientDisconnect

from api.problems import TooLargeError
from domain.errors import InvalidError

DISCARDED_BYTES_MAX = 8 * 1024 * 1024
"""Read and thrown away after the limit, so that a client that is still sending hears the answer."""
BODY_S_MAX = 30.0


async def read_body(request: Request, limit: int) -> bytes:
    """All of the body, at most `limit` bytes; TooLargeError names the limit."""
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S_MAX):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limit:
                    chunks.append(chunk)
                elif size > limit + DISCARDED_BYTES_MAX:
                    break
    except ClientDisconnect:
        raise InvalidError("the client went away before the end of the body") from None
    except TimeoutError:
        raise InvalidError(f"the body did not arrive within {BODY_S_MAX:.0f} s") from None
    if size > limit:
        raise TooLargeError(f"the body has more than {limit} bytes, the limit")
    return b"".join(chunks)
