"""Writes streamed pieces of an answer's body past ASGI.

A piece that goes through ASGI wakes a task and passes half a dozen coroutines, which costs more than all else that
is done for a token.
"""

from quart import Request
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from api.connection import HttpConnection, connection_of


class DirectWriter:
    """Writes pieces of a chunked body straight to the connection."""

    __slots__ = ("_cycle", "_flow", "_transport")

    def __init__(self, connection: HttpConnection, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._flow = connection.flow
        self._transport = connection.transport

    def write(self, piece: bytes) -> bool:
        """Write ``piece``; False, with nothing done, where it must take the usual way: the answer's head has not been
        sent, the body is not chunked, or the client reads too slowly or has gone."""
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
    """The writer for the body of the answer to ``request``; ``None`` under another server than ours."""
    parts = connection_of(request)
    return DirectWriter(*parts) if parts is not None else None
