"""The end of this process, announced: what waits for others answers now. Knows no route."""

import asyncio
from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import refusal
from domain.errors import UnavailableError

STOPPING = "this API is stopping: ask again, here or at another one"


class Closing:
    """Begins once, and never ends."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()

    @property
    def begun(self) -> bool:
        """True once the process has been told to stop."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Called in the event loop of the server."""
        self._begun.set()

    async def sleep(self, seconds: float) -> None:
        """So long, or until the end has begun."""
        try:
            async with asyncio.timeout(seconds):
                await self._begun.wait()
        except TimeoutError:
            return

    async def first(self, waited_for: Awaitable[None]) -> None:
        """Until that is done, or the end has begun; it is cancelled then."""
        doing = asyncio.ensure_future(waited_for)
        ending = asyncio.ensure_future(self._begun.wait())
        try:
            await asyncio.wait((doing, ending), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
        finally:
            ending.cancel()
            doing.cancel()


class AnswerWhenCancelled:
    """What the server gives up as it stops is told to come again, instead of "server error"."""

    def __init__(self, app: ASGIApp, closing: Closing, retry_after_s: int) -> None:
        self.app, self.closing, self.retry_after_s = app, closing, retry_after_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except asyncio.CancelledError:
            if scope["type"] != "http" or begun or not self.closing.begun:
                raise
            # The task of this request ends here, and its server waits for nothing but that.
            answer = refusal(UnavailableError(STOPPING), self.retry_after_s)
            await answer(scope, receive, send)
