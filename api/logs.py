"""Output of attempts, read in chunks from the agent of their cluster, and when they started.

Knows no route, no ledger.
"""

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import httpx
from pydantic import ValidationError

from domain.errors import UnavailableError
from domain.protocol import LogAnswer, StartAnswer

CHUNK_BYTES = 256 * 1024
AGENT_ANSWER_S = 10.0
START_ANSWER_S = 1.0
"""Only a list waits for it, and it can do without."""
CONNECTIONS_MAX = 100

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """`first`: offset of the data, later than asked where older output was rotated away."""

    known: bool
    first: int
    data: bytes
    ended: bool

    @property
    def next(self) -> int:
        """Offset of what follows."""
        return self.first + len(self.data)


class AgentLogs:
    """Asks agents by the addresses that came with their registration."""

    def __init__(self) -> None:
        limits = httpx.Limits(max_connections=CONNECTIONS_MAX)
        self._http = httpx.AsyncClient(timeout=AGENT_ANSWER_S, limits=limits, trust_env=False)

    async def chunk(self, address: str, attempt: str, stream: Stream, offset: int) -> Chunk:
        """The next piece of one stream; UnavailableError while agent or keeper does not answer."""
        query = {
            "attempt": attempt,
            "stream": stream,
            "offset": str(offset),
            "limit": str(CHUNK_BYTES),
        }
        try:
            response = await self._http.get(f"{address.rstrip('/')}/v1/logs", params=query)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnavailableError(
                f"the agent at {address} does not answer: {type(error).__name__}"
            ) from error
        if response.status_code != httpx.codes.OK:
            raise UnavailableError(f"the agent at {address} answers {response.status_code}")
        try:
            answer = LogAnswer.model_validate_json(response.content)
            data = base64.b64decode(answer.data, validate=True)
        except (ValidationError, ValueError) as error:
            raise UnavailableError(f"the agent at {address} cannot be understood") from error
        return Chunk(answer.known, max(answer.first, offset), data, answer.ended)

    async def started(self, address: str, attempt: str) -> datetime | None:
        """The stamp of its start; None when there is none yet, or nobody says so in time."""
        url = f"{address.rstrip('/')}/v1/starts"
        try:
            response = await self._http.get(
                url, params={"attempt": attempt}, timeout=START_ANSWER_S
            )
            response.raise_for_status()  # An agent of the version before does not know the way.
            return StartAnswer.model_validate_json(response.content).started_at
        except (httpx.HTTPError, httpx.InvalidURL, ValidationError):
            return None

    async def close(self) -> None:
        """Let the connections go."""
        await self._http.aclose()
