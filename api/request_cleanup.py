"""Clean-up that happens at the end of an HTTP exchange, however it ends.

A handler that returns a streaming response is over before the stream begins, and a generator that was never
entered runs no ``finally``. So what a handler acquires is released here, around the whole exchange: when the
client has everything, when it goes away in any phase, and when the handler fails.
"""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

from quart import Request

_KEY = "vinoqueue.lifetime"

_PATIENCE = 0.25
"""Seconds after which an exchange that goes on without its client is cancelled again."""


class RequestCleanupMiddleware:
    """ASGI middleware that gives each exchange its :class:`RequestCleanup` and ends it when the client leaves.

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
        life = RequestCleanup(cast("asyncio.Task[Any]", asyncio.current_task()))

        async def hear() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                life.expect_end()
            return message

        scope[_KEY] = life
        try:
            await self._app(scope, hear, send)
        except asyncio.CancelledError:
            if not life.end_enforced():
                raise
        finally:
            life.end()


class RequestCleanup:
    """One exchange: what is released at its end, and its task, which is cancelled if it outlives its client."""

    # There is one for each open stream; an exit stack for each would take ten times the memory.
    __slots__ = ("_callbacks", "_cancellations", "_task", "_timer")

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self._task = task
        self._callbacks: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._cancellations = 0

    def callback(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call ``function`` at the end; the last one given is called first, and each whatever the others raise."""
        self._callbacks.append((function, arguments))

    def expect_end(self) -> None:
        """The client has gone: the task should end by itself."""
        if self._timer is None:
            self._wait()

    def end(self) -> None:
        """The task has come to its end. Raises what a callback raises."""
        if self._timer is not None:
            self._timer.cancel()
        with ExitStack() as stack:
            for function, arguments in self._callbacks:
                stack.callback(function, *arguments)

    def end_enforced(self) -> bool:
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


def request_cleanup(request: Request) -> RequestCleanup:
    """The exchange of ``request``."""
    return cast(RequestCleanup, cast("dict[str, object]", request.scope)[_KEY])
