"""Clean-up that happens at the end of an HTTP exchange, however it ends.

A handler that returns a streaming response is over before the stream begins, and a generator that was never
entered runs no ``finally``. So what a handler acquires is released here, around the whole exchange: when the
client has everything, when it goes away in any phase, and when the handler fails.
"""

from contextlib import AsyncExitStack
from typing import Any, cast

from quart import Request

_KEY = "vinoqueue.lifetime"


class ExchangeLifetime:
    """ASGI middleware that gives each exchange an exit stack."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one exchange."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        async with AsyncExitStack() as stack:
            scope[_KEY] = stack
            await self._app(scope, receive, send)


def lifetime(request: Request) -> AsyncExitStack:
    """The stack that is unwound when the exchange of ``request`` is over."""
    return cast(AsyncExitStack, cast("dict[str, object]", request.scope)[_KEY])
