"""Downloads of the files that clients name by URL, from allowed domains and public addresses only.

Redirects are followed here and pass all checks again.
"""

import asyncio
from urllib.parse import SplitResult, urljoin, urlsplit

import httpcore2

from api.fairness import FairPlaces, Holding, TenantBytes
from api.media.data_url import MAX_IMAGE_BYTES, MediaError, too_large
from api.media.lookups import Lookups
from api.media.network import CheckedNetwork, Meter
from shared.runtime.settings import ApiSettings
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

MAX_DOWNLOADS = 64
"""Maximum number of concurrent downloads."""

DOWNLOADS_OF_TENANT = 16
"""Maximum number of those of a tenant."""

MAX_REDIRECTS = 3
"""Maximum number of redirects of a download, each of which must lead to an allowed host."""

TIMEOUT = 5.0
"""Maximum duration of a download in seconds."""


class Downloads:
    """Downloads files by ``http`` and ``https``, within each tenant's share of places and memory."""

    def __init__(self, settings: ApiSettings, *, max_image_bytes: int = MAX_IMAGE_BYTES) -> None:
        """Nothing is downloaded without ``media_domains``. ``max_media_bytes`` bounds the files that requests have
        downloaded and not queued yet."""
        domains = settings.media_domains.split(",")
        self._domains = tuple(domain.strip().lower().rstrip(".") for domain in domains if domain.strip())
        self._private_addresses = settings.media_private_addresses
        self._limit = max_image_bytes
        full = "Too many bytes of images are being downloaded. Please try again later."
        self._memory = TenantBytes(settings.max_media_bytes, full=full)
        self._places = FairPlaces(MAX_DOWNLOADS, share=DOWNLOADS_OF_TENANT)
        self._lookups = Lookups(patience=TIMEOUT / 2)
        # Takes 80 ms.
        self._tls = httpcore2.default_ssl_context() if self._domains else None

    def request(self, tenant: str) -> Holding:
        """Return the memory for the files of a request of ``tenant``, which they occupy until the context ends."""
        return self._memory.holding(tenant)

    async def download(self, url: str, share: Holding) -> bytes:
        """Return the file at ``url``, which counts in ``share``.

        Raises :class:`MediaError`, and :class:`RequestRefused` if the tenant's share is used up.
        """
        self._check(url)
        try:
            full = "Too many images are being downloaded at a time."
            async with (
                self._places.of(share.tenant, patience=TIMEOUT, full=full),
                asyncio.timeout(TIMEOUT),
            ):
                return await self._follow(url, share)
        except TimeoutError:
            raise MediaError(f"the URL did not respond with the whole file within {TIMEOUT:g} s") from None
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError) as error:
            raise MediaError(f"the URL can't be reached ({type(error).__name__})") from error

    async def _follow(self, url: str, share: Holding) -> bytes:
        for _ in range(MAX_REDIRECTS + 1):
            self._check(url)
            meter = Meter()
            network = CheckedNetwork(self._lookups, share.tenant, meter, private_addresses=self._private_addresses)
            async with (
                httpcore2.AsyncConnectionPool(ssl_context=self._tls, network_backend=network) as connection,
                connection.stream("GET", url, headers=_HEADERS) as response,
            ):
                if response.status not in _REDIRECTS:
                    return await self._read(response, share, meter)
                place = _header(response, b"location")
            if not place:
                raise MediaError("the URL redirects to nowhere")
            url = urljoin(url, place)
        raise MediaError(f"the URL redirects more than {MAX_REDIRECTS} times")

    def _check(self, url: str) -> None:
        parts = _split(url)
        host = (parts.hostname or "").lower().rstrip(".")
        if not any(_matches(host, domain) for domain in self._domains):
            raise MediaError(
                f"the host '{host[:_SHOWN]}' is not among the allowed ones (--media-domains)"
                if self._domains
                else "images are not downloaded here: send a data URL, or set --media-domains"
            )

    async def _read(self, response: httpcore2.Response, share: Holding, meter: Meter) -> bytes:
        if response.status != _OK:
            raise MediaError(f"the URL responded with status {response.status}")
        kind = _header(response, b"content-type").lower()
        if kind and not kind.startswith(_TYPES):
            raise MediaError(f"the URL has the content type '{kind[:_SHOWN]}': expected an image")
        file = bytearray()
        async for part in response.aiter_stream():
            file += part
            share.add(len(part))
            await meter.parsed(len(part))
            if len(file) > self._limit:
                raise too_large(self._limit)
        if not file:
            raise MediaError("the URL responded with an empty file")
        return bytes(file)


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
