"""HTTP connections: uvicorn's protocol with a limit on every size and a deadline for every state.

Without them, a client without a key could hold a connection forever, or exhaust memory with headers, chunk extensions
or trailers.
"""

import asyncio
from collections import deque
from enum import IntEnum
from typing import Any, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from api.http.connection_limits import ConnectionLimits
from api.http.exchange import ConnectionExtension, add_extension
from api.http.refusals import Refusals, guess
from shared.runtime.settings import ApiSettings

MAX_HEAD = 64 * 1024
"""Maximum size in bytes of a request line and its headers. Each read is parsed as a whole, so a head that arrives in
one read may be as large as the read."""

HEAD_TIMEOUT = 15.0
"""Maximum time in seconds to receive a request's head; ``body_timeout`` if that is less."""

MAX_HEADERS = 256
"""Maximum number of headers of a request. Each takes ten times its size in memory."""

_DRAIN_FACTOR = 16
"""Maximum number of bytes, in multiples of the maximum body size, that are read and discarded after the response.

Many clients read the response only after they have sent the whole request. Closing a connection with unread data resets
it, and the client may lose the response."""

_FRAMING_FACTOR = 4
"""Maximum number of bytes of chunk sizes, extensions and trailers per byte of a body, beyond the first
:data:`MAX_HEAD`."""

PING_INTERVAL = 15.0
"""Seconds without output after which a stream gets an event without content, because proxies cut silent streams."""

_GRACE = 5.0
"""Seconds by which the connection's deadlines are later than the request handler's own."""

_FIRST_REQUEST = 1.0
"""Seconds that a client which has just connected has for sending its request when the replica stops listening."""

_HEAD_TOO_LARGE = "The head of the request is larger than 65536 bytes."
_TOO_MANY_HEADERS = f"The request has more than {MAX_HEADERS} headers."
_HEAD_TOO_SLOW = "The head of the request was received too slowly."
_BODY_TOO_SLOW = "The request body was received too slowly."
_BODY_TOO_LARGE = "The request body is too large."
_TOO_MUCH_FRAMING = "The request body has too much chunk framing for its data."
_NOT_HTTP = "Invalid HTTP request received."
_UNKNOWN_VERSION = "Only HTTP/1.1 and HTTP/1.0 are supported."

_NO_PIPELINE = cast("deque[Any]", ())
"""Replaces uvicorn's queue of pipelined requests, which is never used: an empty one takes 760 bytes per connection."""


class _State(IntEnum):
    IDLE = 0
    """No request: nothing but empty lines was received since the last one."""
    HEAD = 1
    """A head is being received."""
    BODY = 2
    """A body is being received. If the response is complete already, the rest of the body is discarded."""
    RESPONSE = 3
    """The request is complete, its response is not."""
    ENDING = 4
    """The connection is closing: nothing more is sent, and input is discarded until the client closes it as well."""


class _StopParsing(Exception):
    """Raised in a callback of the parser to skip the rest of the read."""


class HttpConnection(HttpToolsProtocol):
    """One connection. Subclasses set ``settings``, ``limits`` and ``refusals``.

    Pipelining is not supported: a request that arrives before the previous response is complete is discarded, and the
    connection is closed after that response. Reading therefore never pauses during a response, and a disconnect is
    detected at once.
    """

    # In slots, because more attributes would give each instance a dictionary of its own: 1.3 kB per connection.
    __slots__ = ("_body_size", "_deadline", "_max_body", "_ping", "_received", "_state", "_written", "over_limit")

    settings: ApiSettings
    limits: ConnectionLimits
    refusals: Refusals
    max_discarded: int
    """Maximum size in bytes of what is received and discarded after a response."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.pipeline = _NO_PIPELINE
        self._state = _State.IDLE
        self._deadline = 0.0
        self._received = 0  # Bytes received in this state, including the framing of a body.
        self._body_size = 0
        self._max_body = self.max_discarded
        self._ping = b""
        self._written = 0.0
        self.over_limit = False

    @property
    def address(self) -> str:
        return self.client[0] if self.client is not None else ""

    # Called by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.time() + min(HEAD_TIMEOUT, self.settings.body_timeout)
        self.over_limit = not self.limits.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.limits.remove(self)
        self.cycle = None  # type: ignore[assignment]  # It refers to this connection.

    def data_received(self, data: bytes) -> None:
        state = self._state
        if state >= _State.RESPONSE:
            self._drop(len(data))
            return
        if state is _State.IDLE and not self._received:
            self._deadline = self.loop.time() + min(HEAD_TIMEOUT, self.settings.body_timeout)
        self._received += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._state is _State.HEAD:
                self._ignore_upgrade(data[upgrade.args[0] :])
            elif upgrade.args[0] < len(data):  # CONNECT: what follows is not HTTP.
                self._drop(len(data) - upgrade.args[0])
        except httptools.HttpParserError as error:
            if self._state is _State.RESPONSE:
                self._drop(1)
            else:
                self._refuse(400, _NOT_HTTP, guess(data) or f"invalid HTTP: {error}")
        if self._state is _State.BODY:
            if state < _State.BODY:
                self._received = self._body_size  # The rest of this read was the head.
            self._check_body()
        elif self._state <= _State.HEAD and self._received > MAX_HEAD:
            self._refuse(431, _HEAD_TOO_LARGE)

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._state is not _State.IDLE:
            raise _StopParsing
        self._state = _State.HEAD
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; ignore a trailer."""
        if self._state is not _State.HEAD:
            return
        if len(self.headers) >= MAX_HEADERS:
            self._refuse(431, _TOO_MANY_HEADERS)
            raise _StopParsing
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.get_http_version() not in ("1.1", "1.0"):
            self._refuse(505, _UNKNOWN_VERSION)
            raise _StopParsing
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            return  # The parser skips the body: see _ignore_upgrade.
        if self.parser.get_http_version() == "1.0":
            self.expect_100_continue = False
        super().on_headers_complete()
        cycle = self.cycle
        cycle.transport = cast(asyncio.Transport, self)
        if self.over_limit or self.limits.closing:
            cycle.keep_alive = False
        extension: ConnectionExtension = {
            "over_limit": self.over_limit,
            "allow_upload": self._allow_upload,
            "ping": self._ping_with,
        }
        add_extension(self.scope, extension)
        self.limits.set_busy(self)
        self._body_size = 0
        self._max_body = self.max_discarded
        self._enter(_State.BODY, self.settings.body_timeout + _GRACE)

    def on_body(self, body: bytes) -> None:
        """Pass a piece of the body to the handler, or discard it after the response."""
        self._body_size += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._state is not _State.BODY:
            return
        super().on_message_complete()
        if self.cycle.response_complete:
            self._wait()
        else:
            self._enter(_State.RESPONSE, self.settings.request_timeout + self.settings.client_timeout)

    # Called by the server and by the request's cycle, to which this object is the transport.

    def on_response_complete(self) -> None:
        """Wait for the next request, unless this one has not been received completely."""
        self.server_state.total_requests += 1
        self._ping = b""
        if self.is_closing():
            return
        self.flow.resume_reading()
        if self._state is _State.RESPONSE:
            self._wait()
        elif self._max_body > self.max_discarded:
            self._deadline = self.loop.time() + self.settings.body_timeout  # The rest of an upload is discarded.

    def shutdown(self) -> None:
        """Close, after the current response if there is one."""
        if self._state is _State.ENDING:
            self.transport.abort()
        elif self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def retire(self) -> None:
        """Close as soon as there is no request. A client that has just connected may still send its first one."""
        if self._state is _State.IDLE and not self._received:
            if self.cycle is None:
                self._deadline = min(self._deadline, self.loop.time() + _FIRST_REQUEST)
            else:
                self.transport.close()
        elif self._state is _State.BODY and self.cycle.response_complete:
            self.close()
        elif self._state in (_State.BODY, _State.RESPONSE):
            self.shutdown()

    def write(self, data: bytes) -> None:
        """Send ``data``, unless the connection is closing."""
        if not self.is_closing():
            self._written = self.loop.time()
            self.transport.write(data)

    def is_closing(self) -> bool:
        """Return whether nothing more can be sent."""
        return self._state is _State.ENDING or self.transport.is_closing()

    def close(self) -> None:
        """Close; only the sending side if the client is still sending, so that it does not lose the response."""
        if self.is_closing():
            return
        sending = self._state in (_State.HEAD, _State.BODY) or self._received > 0
        self._enter(_State.ENDING, self.settings.body_timeout if sending else self.settings.client_timeout)
        self.limits.set_waiting(self)
        if sending:
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    def expire(self, now: float) -> None:
        """Close if the deadline of the connection's state is before ``now``, or send a ping if one is due."""
        if self._ping and now - self._written >= PING_INTERVAL:
            self._send_ping()
        if now < self._deadline:
            return
        if self._state is _State.HEAD:
            self._refuse(408, _HEAD_TOO_SLOW)
        elif self._state is _State.BODY and not self.cycle.response_complete:
            self._refuse(408, _BODY_TOO_SLOW)
        elif self._state is _State.IDLE:
            # Without an error, which a client that sends its next request now would take for the response.
            self._received = 0
            self.close()
        else:
            self.transport.abort()

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Parse the head again without its offer to upgrade, which is ignored (RFC 9110, 7.8), and then ``rest``."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            options = value
            if name in (b"connection", b"proxy-connection"):
                options = b",".join(option for option in value.lower().split(b",") if b"upgrade" not in option)
            lines.append(b"%b: %b" % (name, options))
        # The old parser discards what follows `Connection: close`.
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._state, self._received = _State.IDLE, 0
        self.data_received(b"\r\n".join((*lines, b"", rest)))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if cycle.scope["http_version"] == "1.0":
            app = _ended_by_close(cycle, app)
        super()._start_asgi_task(cycle, app)

    def _allow_upload(self, size: int, seconds: float) -> None:
        """Allow the body that is being received ``size`` bytes in total and ``seconds`` from now."""
        if self._state is _State.BODY:
            self._max_body = max(self._max_body, size)
            self._deadline = max(self._deadline, self.loop.time() + seconds + _GRACE)

    def _ping_with(self, event: bytes) -> None:
        self._ping = event

    def _send_ping(self) -> None:
        """Send the ping between two writes of the response, unless the client is slow to read these."""
        if self.cycle.response_started and not self.flow.write_paused:
            ping = self._ping
            self.write(b"%x\r\n%b\r\n" % (len(ping), ping) if self.cycle.chunked_encoding else ping)

    def _wait(self) -> None:
        self._enter(_State.IDLE, self.settings.keep_alive_timeout)
        self.limits.set_waiting(self)

    def _enter(self, state: _State, seconds: float) -> None:
        self._state = state
        self._received = 0
        self._deadline = self.loop.time() + seconds

    def _drop(self, size: int) -> None:
        """Count discarded input."""
        self._received += size
        if self._state is _State.RESPONSE:
            self.cycle.keep_alive = False
        if self._received > self.max_discarded:
            self.transport.abort()

    def _check_body(self) -> None:
        body, settings = self._body_size, self.settings
        framing = self._received - body
        if framing > MAX_HEAD + min(_FRAMING_FACTOR * body, settings.max_request_body):
            self._refuse(413, _TOO_MUCH_FRAMING)
        elif body > self._max_body:
            self._refuse(413, _BODY_TOO_LARGE)

    def _refuse(self, status: int, reason: str, guessed: str = "") -> None:
        """Close, with an error response to a request that has none yet. The log has ``guessed`` or ``reason``."""
        if self.is_closing():
            return
        self.refusals.add(self.address, status, guessed or reason)
        cycle = self.cycle
        responds = self._state is not _State.IDLE
        if self._state is _State.BODY:
            responds = not cycle.response_started
            cycle.disconnected = True
            cycle.message_event.set()
        if responds:
            body = reason.encode()
            self.transport.write(
                STATUS_LINE[status]
                + b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % (len(body), body)
            )
        self.close()


def connection_type(settings: ApiSettings, limits: ConnectionLimits, refusals: Refusals) -> type[HttpConnection]:
    """Return the protocol class with these limits; uvicorn takes a class."""
    most = max(_DRAIN_FACTOR * settings.max_body, 2 * settings.max_request_body)
    attributes = {"settings": settings, "limits": limits, "refusals": refusals, "max_discarded": most, "__slots__": ()}
    return type("BoundedConnection", (HttpConnection,), attributes)


def _ended_by_close(cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
    """Wrap ``app`` for an HTTP/1.0 client, which does not support chunks: closing the connection ends the body."""

    async def without_chunks(scope: Any, receive: Any, send: Any) -> None:
        open_ended = False

        async def send_plain(message: Any) -> None:
            nonlocal open_ended
            if message["type"] == "http.response.start":
                open_ended = all(name.lower() != b"content-length" for name, _ in message["headers"])
                if open_ended:
                    cycle.chunked_encoding = False
            elif open_ended:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_plain)

    return without_chunks
