"""Downloads of the files that clients name by URL, from allowed domains and public addresses only.

Server-side request forgery is prevented where connections are made: the host is resolved once, all its addresses must
be public, and the connection goes to one of them. Redirects are followed here and pass all checks again.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from urllib.parse import SplitResult, urljoin, urlsplit

import httpcore2

from api.media.data_url import MediaError, too_large
from api.media.shares import DownloadShare
from shared.runtime.version import VERSION

ANY_DOMAIN = "*"

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK = 200
_TYPES = ("image/", "application/octet-stream", "binary/octet-stream")
_HEADERS = [
    (b"user-agent", f"vinoqueue/{VERSION}".encode()),
    (b"accept", b"image/*"),
    (b"accept-encoding", b"identity"),
]
_SHOWN = 100
MAX_CONNECTIONS = 32
"""Maximum number of concurrent downloads."""


class Downloads:
    """Downloads files by ``http`` and ``https``. An async context manager that owns its connections."""

    def __init__(
        self, *, domains: Iterable[str], private_addresses: bool, redirects: int, timeout: float, limit: int
    ) -> None:
        """``domains`` are host names, ``*.example.org`` for all below one, or ``*``; without any, nothing is
        downloaded. ``private_addresses`` allows addresses that are not public. ``redirects`` is the maximum number of
        redirects per file, ``timeout`` the time for one file in seconds, and ``limit`` its maximum size in bytes."""
        self._domains = tuple(domain.strip().lower().rstrip(".") for domain in domains if domain.strip())
        self._redirects = redirects
        self._timeout = timeout
        self._limit = limit
        self._pool = httpcore2.AsyncConnectionPool(
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=0,
            network_backend=_CheckedNetwork(private_addresses),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def download(self, url: str, share: DownloadShare) -> bytes:
        """Return the file at ``url``, which counts in ``share``.

        Raises :class:`MediaError`, and :class:`RequestRefused` if the file exceeds the share.
        """
        try:
            async with share.connection(), asyncio.timeout(self._timeout):
                return await self._follow(url, share)
        except TimeoutError:
            raise MediaError(f"the URL did not respond with the whole file within {self._timeout:g} s") from None
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError) as error:
            raise MediaError(f"the URL can't be reached ({type(error).__name__})") from error

    async def _follow(self, url: str, share: DownloadShare) -> bytes:
        for _ in range(self._redirects + 1):
            self._check(url)
            async with self._pool.stream("GET", url, headers=_HEADERS) as response:
                if response.status not in _REDIRECTS:
                    return await self._read(response, share)
                place = _header(response, b"location")
            if not place:
                raise MediaError("the URL redirects to nowhere")
            url = urljoin(url, place)
        allowed = (
            f"more than {self._redirects} times" if self._redirects else "elsewhere, and redirects are not followed"
        )
        raise MediaError(f"the URL redirects {allowed}")

    def _check(self, url: str) -> None:
        parts = _split(url)
        host = (parts.hostname or "").lower().rstrip(".")
        if not any(_matches(host, domain) for domain in self._domains):
            raise MediaError(
                f"the host '{host[:_SHOWN]}' is not among the allowed ones (--media-domains)"
                if self._domains
                else "images are not downloaded here: send a data URL, or set --media-domains"
            )

    async def _read(self, response: httpcore2.Response, share: DownloadShare) -> bytes:
        if response.status != _OK:
            raise MediaError(f"the URL responded with status {response.status}")
        kind = _header(response, b"content-type").lower()
        if kind and not kind.startswith(_TYPES):
            raise MediaError(f"the URL has the content type '{kind[:_SHOWN]}': expected an image")
        file = bytearray()
        async for part in response.aiter_stream():
            file += part
            share.add(len(part))
            if len(file) > self._limit:
                raise too_large(self._limit)
        if not file:
            raise MediaError("the URL responded with an empty file")
        return bytes(file)


class _CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects only to hosts all of whose addresses are public, and to an address that was checked."""

    def __init__(self, private_addresses: bool) -> None:
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
        addresses = await _resolve(host, port)
        if not self._private_addresses and not all(map(_is_public, addresses)):
            raise MediaError(f"the host '{host[:_SHOWN]}' has an address that is not public")
        for address in addresses[:-1]:
            with suppress(httpcore2.ConnectError):
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
        return await self._network.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)


async def _resolve(host: str, port: int) -> Sequence[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise MediaError(f"the host '{host[:_SHOWN]}' can't be resolved") from None
    return [str(address[0]) for *_, address in found]


def _is_public(address: str) -> bool:
    """Return whether ``address`` is a public one. IPv6 addresses that embed an IPv4 address must embed a public one."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo[1] if parsed.teredo else None)
        if inner is not None and not inner.is_global:
            return False
        if parsed in _NAT64 and not ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF).is_global:
            return False
    return parsed.is_global and not parsed.is_multicast


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise MediaError("the URL is malformed") from None
    if parts.scheme not in ("http", "https"):
        raise MediaError(f"the URL has the scheme '{parts.scheme[:_SHOWN]}': expected https, http or data")
    if not parts.hostname or not url.isascii() or any(character <= " " for character in url):
        raise MediaError("the URL is malformed")
    if parts.username is not None or parts.password is not None:
        raise MediaError("the URL has a user name, which is not supported")
    return parts


def _matches(host: str, domain: str) -> bool:
    return domain == ANY_DOMAIN or host == domain or (domain.startswith("*.") and host.endswith(domain[1:]))


def _header(response: httpcore2.Response, name: bytes) -> str:
    return next((value.decode("latin-1").strip() for key, value in response.headers if key.lower() == name), "")
