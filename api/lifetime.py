"""Clean-up that happens at the end of an HTTP exchange, however it ends.

A handler that returns a streaming response is over before the stream begins, and a generator that was never
entered runs no ``finally``. So what a handler acquires is released here, around the whole exchange: when the
client has everything, when it goes away in any phase, and when the handler fails.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

from quart import Request

_KEY = "vinoqueue.lifetime"

_PATIENCE = 0.25
"""Seconds after which an exchange that goes on without its client is cancelled again."""


class ExchangeLifetime:
    """ASGI middleware that gives each exchange an exit stack, and sees to it that a client's leaving ends it.

    Quart cancels the handler when the client has gone, once. In Python 3.11 that can get lost: asyncio.wait_for, which
    redis-py calls for each command, swallows a cancellation that meets its own end. So it is repeated.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one exchange."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        end = _End(cast("asyncio.Task[Any]", asyncio.current_task()))

        async def hear() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                end.expect()
            return message

        async with AsyncExitStack() as stack:
            scope[_KEY] = stack
            try:
                await self._app(scope, hear, send)
            except asyncio.CancelledError:
                if not end.enforced():
                    raise
            finally:
                end.reached()


class _End:
    """Cancels a task that goes on after its client has gone, until it ends."""

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self._task = task
        self._timer: asyncio.TimerHandle | None = None
        self._cancellations = 0

    def expect(self) -> None:
        """The client has gone: the task should end by itself."""
        if self._timer is None:
            self._wait()

    def reached(self) -> None:
        """The task has come to its end."""
        if self._timer is not None:
            self._timer.cancel()

    def enforced(self) -> bool:
        """Whether the task's cancellation came from here; it is then not cancelled any longer."""
        for _ in range(self._cancellations):
            self._task.uncancel()
        return self._cancellations > 0

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE, self._enforce)

    def _enforce(self) -> None:
        self._cancellations += 1
        self._task.cancel()
        self._wait()


def lifetime(request: Request) -> AsyncExitStack:
    """The stack that is unwound when the exchange of ``request`` is over."""
    return cast(AsyncExitStack, cast("dict[str, object]", request.scope)[_KEY])
