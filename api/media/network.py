"""Connections of downloads: to public addresses only, and metered.

Server-side request forgery is prevented where connections are made: the host is resolved once, all its addresses must
be public, and the connection goes to one of them.
"""

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import httpcore2

from api.media.data_url import MediaError
from api.media.lookups import Lookups, is_public

_SHOWN = 100

_OVERHEAD = 16 * 1024
"""Maximum number of bytes besides an eighth of the content: heads, interim responses and framing."""

_PARTS, _PART = 256, 512
"""Maximum number of parts in which the content arrives, and one more for each so many bytes."""

_PARTS_AT_ONCE = 32
"""Number of parts after which other tasks run."""

_FIRST_READ = 1024
"""Number of bytes to read at a time before content arrives."""


class Meter:
    """Counts what arrives for one request, on the wire and as content.

    The content is what a server has to send. Everything else costs it little and this process much: parsing a chunk of
    one byte, or an interim response, takes as long as parsing 64 KB.
    """

    def __init__(self) -> None:
        self._wire = self._content = self._parts = 0

    def check_wire(self) -> None:
        """Raise :class:`MediaError` if too much has arrived beside the content."""
        if self._wire - self._content > _OVERHEAD + self._content // 8:
            raise MediaError("the URL responded with too much besides the file")

    def read_size(self, size: int) -> int:
        """Return how many bytes to read at a time, at most ``size``: few until content arrives."""
        return min(size, _FIRST_READ + self._content)

    def received(self, size: int) -> None:
        self._wire += size

    async def parsed(self, size: int) -> None:
        """Count ``size`` bytes of content. Raises :class:`MediaError` if they come in too many parts."""
        self._content += size
        self._parts += 1
        if self._parts > _PARTS + self._content // _PART:
            raise MediaError("the URL responded in too many small parts")
        if self._parts % _PARTS_AT_ONCE == 0:
            await asyncio.sleep(0)


class _MeteredStream(httpcore2.AsyncNetworkStream):
    """A connection that counts what arrives."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Read from the connection. Raises :class:`MediaError` if too much has arrived besides the content."""
        self._meter.check_wire()
        # Other tasks run between two reads even if this connection always has data.
        await asyncio.sleep(0)
        data = await self._stream.read(self._meter.read_size(max_bytes), timeout)
        self._meter.received(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        return _MeteredStream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._meter)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects one request: only to a host all of whose addresses are public, and to an address that was checked."""

    def __init__(self, lookups: Lookups, tenant: str, meter: Meter, *, private_addresses: bool) -> None:
        self._lookups = lookups
        self._tenant = tenant
        self._meter = meter
        self._private_addresses = private_addresses
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (httpcore's signature)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to ``host``. Raises :class:`MediaError` if it has an address that is not allowed."""
        addresses = await self._lookups.addresses(host, port, tenant=self._tenant)
        if not self._private_addresses and not all(map(is_public, addresses)):
            raise MediaError(f"the host '{host[:_SHOWN]}' has an address that is not public")
        for address in addresses[:-1]:
            with suppress(httpcore2.ConnectError):
                return await self._connect(address, port, timeout, local_address, socket_options)
        return await self._connect(addresses[-1], port, timeout, local_address, socket_options)

    async def _connect(self, address: str, port: int, *options: Any) -> httpcore2.AsyncNetworkStream:
        return _MeteredStream(await self._network.connect_tcp(address, port, *options), self._meter)
