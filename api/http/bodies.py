"""Reading and parsing request bodies within limits. Large ones are parsed outside of the event loop."""

import asyncio
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar, cast

from quart import Request
from quart.wrappers.request import Body
from werkzeug.exceptions import RequestEntityTooLarge

from api.fairness import SMALL, FairThread, TenantBytes
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest
from shared.runtime.settings import ApiSettings

_MAX_BUFFERED = 512 * 1024
"""Maximum number of bytes of a body that are buffered before the route reads them."""


class PacedBody(Body):
    """A request body that is received only as fast as the route reads it, so that an upload does not fill memory."""

    def __init__(self, expected_content_length: int | None, max_content_length: int | None) -> None:
        super().__init__(expected_content_length, max_content_length)
        self._room = asyncio.Event()
        self._room.set()

    async def __anext__(self) -> bytes:
        """Return what was received. Raises :class:`RequestEntityTooLarge`."""
        data = await super().__anext__()
        self._room.set()
        return data

    def append(self, data: bytes) -> None:
        super().append(data)
        if len(self._data) >= _MAX_BUFFERED:
            self._room.clear()

    async def room(self) -> None:
        """Wait until more data may be received."""
        await self._room.wait()


class _ReadBody:
    """Replaces a request body that has been read. Quart's own object would occupy 1.7 kB for the life of a stream."""

    def append(self, data: bytes) -> None:
        """Ignore data after the body."""

    def set_complete(self) -> None:
        """Ignore the end of the body."""

    async def room(self) -> None:
        """Return at once."""


LARGE_BODIES = 8
LARGE_BODIES_OF_TENANT = 4
"""Maximum number of bodies larger than ``max_body`` that are read and parsed at a time, of all tenants and of one."""

TOO_MANY_LARGE_BODIES = "Too many large requests are being received. Please try again later, or send fewer at a time."

_RETRY = 1.0
"""``Retry-After`` in seconds."""

_READ = cast(Body, _ReadBody())


def check_body_size(size: int, request: ChatRequest, limit: int) -> None:
    """Raise :class:`RequestRefused` if the body of ``request`` may not have ``size`` bytes.

    Beyond ``limit``, a body must have images, and must not be stored: what is stored is kept for long.
    """
    if size > limit and (request.store or not request.images):
        raise body_too_large(limit)


def too_many_large_bodies() -> RequestRefused:
    """Return the refusal of another large body while there is no room for it."""
    return refuse(ProblemKind.QUEUE_FULL, TOO_MANY_LARGE_BODIES, retry_after=_RETRY)


def body_too_large(limit: int) -> RequestRefused:
    return refuse(ProblemKind.TOO_LARGE, f"The request body is larger than the maximum of {limit} bytes.")


_ALL_BYTES = 16
_TENANT_BYTES = 4
"""Maximum size of the bodies that wait or are parsed, of all tenants and of one, in multiples of the maximum size of a
body without images. A tenant's only one may be larger."""

_Parsed = TypeVar("_Parsed")


class BodyParser:
    """Parses bodies, and bounds what waits for it."""

    def __init__(self, settings: ApiSettings, thread: FairThread) -> None:
        self._settings = settings
        self._thread = thread
        self._bytes = TenantBytes(
            max(_ALL_BYTES * settings.max_body, settings.max_media_body),
            share=_TENANT_BYTES * settings.max_body,
            full=TOO_MANY_LARGE_BODIES,
        )

    async def read(
        self, request: Request, tenant: str, parse: Callable[[bytes], _Parsed], *, untyped: bool = False
    ) -> _Parsed:
        """Read the body of ``request`` as :meth:`receive` does, and parse it."""
        async with self.receive(request, tenant, None, untyped=untyped) as body:
            return await self.run(tenant, len(body), partial(parse, body))

    @asynccontextmanager
    async def receive(
        self,
        request: Request,
        tenant: str,
        place: AbstractAsyncContextManager[None] | None,
        *,
        untyped: bool = False,
    ) -> AsyncIterator[bytes]:
        """Receive and decode the body: at most ``max_body`` bytes, or ``max_media_body`` if ``place`` is given, in at
        most ``body_timeout`` seconds. A body larger than ``max_body`` occupies its place until the context ends, which
        bounds the memory of all.

        Raises :class:`RequestRefused` when it is too large, too slow, or not declared as JSON. Browsers send other
        content types across origins without a preflight request, so accepting them would let web pages use the API.
        Bodies are ``untyped`` only where :class:`api.http.guards.Guards` refuses requests of other origins.
        """
        if request.mimetype != "application/json" and not untyped:
            named = f"Unsupported content type '{request.mimetype[:100]}'" if request.mimetype else "No content type"
            raise refuse(ProblemKind.UNSUPPORTED_MEDIA, f"{named}: send the body as 'Content-Type: application/json'.")
        coding = coding_of(request.headers.get("content-encoding", ""))
        settings = self._settings
        async with AsyncExitStack() as places:
            limit, waiting = settings.max_body, False

            async def enlarge() -> None:
                nonlocal limit, waiting
                if place is None or limit >= settings.max_media_body:
                    raise RequestEntityTooLarge
                waiting = True
                await places.enter_async_context(place)
                limit, waiting = settings.max_media_body, False

            try:
                # Quart's own timeout does not apply to reading a body in parts.
                async with asyncio.timeout(settings.body_timeout):
                    parts: list[bytes] = []
                    size = 0
                    async for part in request.body:
                        size += len(part)
                        if size > limit:
                            await enlarge()
                        if size > limit:
                            raise RequestEntityTooLarge
                        parts.append(part)
                    body = b"".join(parts)
                    if coding:
                        encoded = body
                        try:
                            body = await self._decoded(tenant, encoded, coding, limit)
                        except RequestEntityTooLarge:
                            await enlarge()
                            body = await self._decoded(tenant, encoded, coding, limit)
            except RequestEntityTooLarge as error:
                raise body_too_large(limit) from error
            except TimeoutError as error:
                if waiting:
                    raise too_many_large_bodies() from error
                raise refuse(ProblemKind.TIMEOUT, "The request body was received too slowly.") from error
            request.body = _READ
            yield body.removeprefix(BOM_UTF8)

    async def _decoded(self, tenant: str, body: bytes, coding: str, limit: int) -> bytes:
        """Decode ``body`` in the thread, because a small one may become large."""
        return await self.run(tenant, max(len(body), SMALL + 1), partial(decode, body, coding, limit))

    async def run(self, tenant: str, size: int, parse: Callable[[], _Parsed]) -> _Parsed:
        """Return the result of ``parse``, whose input has ``size`` bytes. Its time is at most proportional to it.

        Raises :class:`RequestRefused` if too many bytes wait, and what ``parse`` raises.
        """
        if size <= SMALL:
            return parse()
        with self._bytes.holding(tenant) as holding:
            holding.add(size)
            return await self._thread.run(tenant, size, parse)


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODINGS = ("gzip", "deflate", "zstd")
UNKNOWN_CODING = "unsupported_content_encoding"
"""Code of the refusal of another coding; its response has ``Accept-Encoding`` (RFC 7694)."""

_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
"""Memory for a zstd frame: 8 MB, as in RFC 9659."""
_EITHER, _RAW = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS
"""zlib's ``wbits`` for the formats of gzip and zlib, and for deflate data without either, which some clients send."""


def coding_of(header: str) -> str:
    """Return the coding that ``Content-Encoding`` names; empty without one. Raises :class:`RequestRefused`."""
    names = {name.strip().lower().removeprefix("x-") for name in header.split(",")} - {"", "identity"}
    if len(names) > 1 or not names <= set(CODINGS) or header.count(",") > len(CODINGS):
        raise refuse(
            ProblemKind.UNSUPPORTED_MEDIA,
            f"Unsupported content encoding '{header[:100]}': send the body uncompressed, or in one of {CODINGS}.",
            code=UNKNOWN_CODING,
        )
    return names.pop() if names else ""


def decode(body: bytes, coding: str, limit: int) -> bytes:
    """Return the data in ``body``. Raises :class:`RequestRefused`, and :class:`RequestEntityTooLarge` if it has more
    than ``limit`` bytes, of which no more are decoded."""
    decoder: zstd.ZstdDecompressor | zlib._Decompress
    if coding == "zstd":
        decoder = zstd.ZstdDecompressor(options=_WINDOW)
    else:
        has_head = len(body) > 1 and (coding == "gzip" or (body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0))
        decoder = zlib.decompressobj(_EITHER if has_head else _RAW)
    try:
        data = decoder.decompress(body, limit + 1)
    except (zlib.error, zstd.ZstdError) as error:
        raise refuse(ProblemKind.INVALID, f"The body is not {coding} data: {error}.") from None
    if len(data) > limit:
        raise RequestEntityTooLarge
    if not decoder.eof or decoder.unused_data:
        raise refuse(ProblemKind.INVALID, f"The body is not exactly one whole piece of {coding} data.")
    return data
