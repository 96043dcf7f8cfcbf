"""The ASGI extension ``vinoqueue.connection``: what our HTTP server offers the application beyond ASGI.

``scope["extensions"]["vinoqueue.connection"]`` is a :class:`ConnectionExtension`. Other servers do not have it, and the
application works without it.
"""

from asyncio import Transport
from collections.abc import Callable
from typing import Any, TypedDict, cast

from quart import Request
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_NAME = "vinoqueue.connection"


class ConnectionExtension(TypedDict):
    """The connection of one request."""

    over_limit: bool
    """Whether the connection exceeds the connection limits. Such connections are served only probes and metrics."""
    write_chunk: Callable[[bytes], bool]
    """Writes a piece of a streamed body directly to the connection; see :meth:`ChunkWriter.write`.

    Sending through ASGI wakes a task and passes half a dozen coroutines. That takes 1.6 times the CPU time per token of
    the whole replica (decision 0015)."""
    allow_upload: Callable[[int, float], None]
    """Allows the rest of the body of this request a total size in bytes, and a time in seconds from now."""


class ChunkWriter:
    """Writes pieces of a chunked response body directly to the connection."""

    __slots__ = ("_cycle", "_flow", "_transport")

    def __init__(self, cycle: RequestResponseCycle, flow: FlowControl, transport: Transport) -> None:
        self._cycle = cycle
        self._flow = flow
        self._transport = transport

    def write(self, piece: bytes) -> bool:
        """Write ``piece`` and return True. Return False without writing if it must be sent through ASGI: the head has
        not been sent, the body is not chunked, or the client is slow or disconnected."""
        cycle = self._cycle
        if (
            not cycle.chunked_encoding
            or cycle.response_complete
            or cycle.disconnected
            or self._flow.write_paused
            or self._transport.is_closing()
        ):
            return False
        self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True


def add_extension(scope: Any, extension: ConnectionExtension) -> None:
    scope.setdefault("extensions", {})[_NAME] = extension


def connection_extension(request: Request) -> ConnectionExtension | None:
    """Return the extension in the scope of ``request``; ``None`` under another server than ours."""
    extensions = cast("dict[str, Any]", request.scope).get("extensions") or {}
    return cast("ConnectionExtension | None", extensions.get(_NAME))
