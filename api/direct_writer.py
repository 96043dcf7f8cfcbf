"""Direct writing of streamed response bodies to the connection, bypassing ASGI.

Sending through ASGI wakes a task and passes half a dozen coroutines, which costs more than all other work per token.
"""

from quart import Request
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from api.connection import HttpConnection, connection_of


class DirectWriter:
    """Writes pieces of a chunked body directly to the connection."""

    __slots__ = ("_cycle", "_flow", "_transport")

    def __init__(self, connection: HttpConnection, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._flow = connection.flow
        self._transport = connection.transport

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


def direct_writer(request: Request) -> DirectWriter | None:
    """Return the writer for the response to ``request``; ``None`` under another ASGI server."""
    parts = connection_of(request)
    return DirectWriter(*parts) if parts is not None else None
