"""One HTTP connection, with the bounds that uvicorn's has not: on the size of a request's head, and on its time.

Without them a client could hold a connection for ever by sending a header a minute, or fill the memory with headers.
"""

import asyncio
from collections import deque
from typing import Any, cast

from quart import Request
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

_KEY = "vinoqueue.connection"

MAX_HEAD = 64 * 1024
"""Most bytes of a request line and headers together. What one read brings is parsed at once, so a head that comes whole
may be as large as a read."""

_TOO_LARGE = b"The head of the request is larger than 65536 bytes."
_TOO_SLOW = b"The head of the request came too slowly."


class _Pipeline(list[Any]):
    """Requests that wait for the one before them: few have any, and an empty deque takes 760 bytes a connection."""

    __slots__ = ()

    def appendleft(self, item: Any) -> None:
        """Let ``item`` wait behind the others."""
        self.insert(0, item)


class BoundedHeadProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, with bounds on the heads of requests. Subclasses set ``patience``."""

    # In slots, because three more attributes would make each instance's dictionary one of its own: 1.3 kB a connection.
    __slots__ = ("_deadline", "_head_size", "_in_head")

    patience = 15.0
    """Seconds for a whole head, from the first byte; for the first request, from the connection on."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.pipeline = cast("deque[Any]", _Pipeline())
        self._in_head = True
        self._head_size = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.patience, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse ``data``, unless it makes a head too large."""
        if self._in_head:
            self._head_size += len(data)
        super().data_received(data)
        if self._in_head and self._head_size > MAX_HEAD and not self.transport.is_closing():
            self._refuse(431, _TOO_LARGE)

    def on_message_begin(self) -> None:
        """The first byte of a head is here."""
        super().on_message_begin()
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.patience, self._give_up)

    def on_headers_complete(self) -> None:
        """The head is whole: what follows is a body."""
        self._in_head = False
        self._head_size = 0
        self._stop_waiting()
        super().on_headers_complete()
        cast("dict[str, object]", self.scope)[_KEY] = (self, self.cycle)

    def on_message_complete(self) -> None:
        """The body is whole: what follows is the next head."""
        super().on_message_complete()
        self._in_head = True

    def _give_up(self) -> None:
        self._deadline = None
        if not self._in_head or self.transport.is_closing():
            return
        if self._head_size == 0:
            # Nothing was asked: a client that has just begun to must not take this for its answer.
            self.transport.close()
        else:
            self._refuse(408, _TOO_SLOW)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: int, reason: bytes) -> None:
        """Close; tell why, unless the answer to an earlier request on the connection is under way."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(
                STATUS_LINE[status]
                + b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
                % (len(reason), reason)
            )
        self.transport.close()


class DirectWriter:
    """Writes pieces of a body that is being streamed straight to the connection.

    A piece that goes through ASGI wakes a task and passes half a dozen coroutines, which costs more than all else that
    is done for a token.
    """

    __slots__ = ("_cycle", "_flow", "_transport")

    def __init__(self, connection: BoundedHeadProtocol, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._flow = connection.flow
        self._transport = connection.transport

    def write(self, piece: bytes) -> bool:
        """Write ``piece``; False, with nothing done, where it must take the usual way: the answer's head has not been
        sent, or the client reads too slowly, or has gone."""
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
    parts = cast("dict[str, Any]", request.scope).get(_KEY)
    return DirectWriter(*parts) if parts is not None else None


def protocol_with(patience: float) -> type[BoundedHeadProtocol]:
    """Return the protocol with so many seconds for a head, as uvicorn takes a class."""
    return type("HttpConnection", (BoundedHeadProtocol,), {"patience": patience, "__slots__": ()})
