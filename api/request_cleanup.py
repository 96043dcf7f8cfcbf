"""Cleanup callbacks that run at the end of an HTTP exchange, however it ends.

A handler that returns a streaming response ends before the stream starts, and a generator that was never entered runs
no ``finally``. Resources are therefore released here, around the whole exchange: when the response is complete, when
the client disconnects in any phase, and when the handler fails.
"""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

from quart import Request

_KEY = "vinoqueue.lifetime"

_PATIENCE = 0.25
"""Seconds after a disconnect until a task that is still running is cancelled, and between repeated cancellations."""


class RequestCleanupMiddleware:
    """ASGI middleware that gives each exchange a :class:`RequestCleanup` and ends it when the client disconnects.

    Quart cancels the handler once when the client disconnects. In Python 3.11 that cancellation can get lost:
    ``asyncio.wait_for``, which redis-py calls for each command, swallows one that coincides with its own completion.
    The middleware therefore repeats it.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one exchange."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        cleanup = RequestCleanup(cast("asyncio.Task[Any]", asyncio.current_task()))

        async def watched_receive() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                cleanup.expect_end()
            return message

        scope[_KEY] = cleanup
        try:
            await self._app(scope, watched_receive, send)
        except asyncio.CancelledError:
            if not cleanup.end_enforced():
                raise
        finally:
            cleanup.end()


class RequestCleanup:
    """The cleanup callbacks of one exchange, and its task, which is cancelled if it outlives the client."""

    # One instance per open stream; an ExitStack for each would take ten times the memory.
    __slots__ = ("_callbacks", "_cancellations", "_task", "_timer")

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self._task = task
        self._callbacks: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._cancellations = 0

    def callback(self, function: Callable[..., object], *arguments: Any) -> None:
        """Register a callback. Callbacks run in reverse order, and all of them run even if some raise."""
        self._callbacks.append((function, arguments))

    def expect_end(self) -> None:
        """Start the timer that cancels the task, because the client has disconnected."""
        if self._timer is None:
            self._wait()

    def end(self) -> None:
        """Run the callbacks, because the task has ended. Raises what a callback raises."""
        if self._timer is not None:
            self._timer.cancel()
        with ExitStack() as stack:
            for function, arguments in self._callbacks:
                stack.callback(function, *arguments)

    def end_enforced(self) -> bool:
        """Return whether the timer cancelled the task, and undo these cancellations."""
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
    """Return the cleanup of the exchange of ``request``."""
    return cast(RequestCleanup, cast("dict[str, object]", request.scope)[_KEY])
