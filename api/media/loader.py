"""Reads the images of a request from data URLs, downloads and local files."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec
from prometheus_client import CollectorRegistry

from api.fairness import Holding
from api.media.data_url import MAX_IMAGE_BYTES, MediaError, decode_data_url, is_data_url, too_large
from api.media.download import Downloads
from api.metrics import catalogue
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import LOCAL, ChatRequest, Image
from shared.runtime.settings import ApiSettings

_DECODED_INLINE = 2**20
"""Maximum length of a data URL that is decoded without a thread. Decoding takes 2 ms, as parsing its body does; in a
burst, a thread would run only after the bodies of all other requests have been parsed."""

Source = Literal["data", "local", "download"]
"""The source of an image: a data URL, a local file or a download."""


class _File(NamedTuple):
    """A file that was read, and its digest."""

    digest: str
    content: bytes


class MediaLoader:
    """Reads images within limits."""

    def __init__(
        self,
        downloads: Downloads,
        settings: ApiSettings,
        registry: CollectorRegistry,
        *,
        max_image_bytes: int = MAX_IMAGE_BYTES,
    ) -> None:
        self._downloads = downloads
        folder = settings.allowed_local_media_path
        self._local_path = Path(folder).resolve() if folder else None
        self._max_images = settings.max_images
        self._max_image_bytes = max_image_bytes
        self._times = catalogue.IMAGE_SECONDS.histogram(registry)
        self._bytes = catalogue.IMAGE_BYTES.counter(registry)
        self._failures = catalogue.IMAGE_FAILURES.counter(registry)
        for source in get_args(Source):
            self._times.labels(source)
            self._bytes.labels(source)
            self._failures.labels(source)

    @asynccontextmanager
    async def loaded(self, request: ChatRequest, *, tenant: str) -> AsyncIterator[tuple[ChatRequest, dict[str, bytes]]]:
        """Yield the request with digests in place of URLs, and the files by digest. Downloads count as those of
        ``tenant`` until the context ends.

        Raises :class:`RequestRefused`, which names the content part.
        """
        if request.tier == "batch":
            tenant = f"batches of {tenant}"  # Other requests of the tenant do not wait for them.
        with self._downloads.request(tenant) as share:
            yield await self._load(request, share)

    async def _load(self, request: ChatRequest, share: Holding) -> tuple[ChatRequest, dict[str, bytes]]:
        images = request.images
        if len(images) > self._max_images:
            reason = f"this request has {len(images)}, and the maximum is {self._max_images}"
            raise _refusal(images[self._max_images], reason)
        urls = list(dict.fromkeys(image.url for image in images))
        read = dict(zip(urls, await asyncio.gather(*(self._read(url, share) for url in urls)), strict=True))
        digests: dict[str, str] = {}
        files: dict[str, bytes] = {}
        for image in images:
            file = read[image.url]
            if isinstance(file, RequestRefused):
                raise file
            if isinstance(file, MediaError):
                raise _refusal(image, str(file))
            digests[image.url] = file.digest
            files[file.digest] = file.content
        return _with_digests(request, digests), files

    async def _read(self, url: str, share: Holding) -> _File | MediaError | RequestRefused:
        """Return the file, or the reason why it can't be read: one failure must not interrupt the others."""
        source = _source(url)
        started_at = time.monotonic()
        try:
            match source:
                case "data":
                    if len(url) > _DECODED_INLINE:
                        file = await asyncio.to_thread(self._decode, url)
                    else:
                        file = self._decode(url)
                case "local":
                    file = await asyncio.to_thread(self._read_local, url[len(LOCAL) :])
                case "download":
                    file = await asyncio.to_thread(_digested, await self._downloads.download(url, share))
        except (MediaError, RequestRefused) as error:
            self._failures.labels(source).inc()
            return error
        self._times.labels(source).observe(time.monotonic() - started_at)
        self._bytes.labels(source).inc(len(file.content))
        return file

    def _decode(self, url: str) -> _File:
        return _digested(decode_data_url(url, self._max_image_bytes))

    def _read_local(self, name: str) -> _File:
        if self._local_path is None:
            raise MediaError("local files are not served here: see --allowed-local-media-path")
        missing = MediaError("there is no such file under --allowed-local-media-path")
        try:
            path = Path(name).resolve(strict=True)
            if not path.is_relative_to(self._local_path) or not path.is_file():
                raise missing
            if path.stat().st_size > self._max_image_bytes:
                raise too_large(self._max_image_bytes)
            return _digested(path.read_bytes())
        except (OSError, ValueError, RuntimeError):
            raise missing from None


def _digested(content: bytes) -> _File:
    return _File(sha256(content).hexdigest(), content)


def _source(url: str) -> Source:
    if is_data_url(url):
        return "data"
    return "local" if url.startswith(LOCAL) else "download"


def _with_digests(request: ChatRequest, digests: dict[str, str]) -> ChatRequest:
    messages = tuple(
        msgspec.structs.replace(
            message,
            images=tuple(msgspec.structs.replace(image, url="", digest=digests[image.url]) for image in message.images),
        )
        if message.images
        else message
        for message in request.messages
    )
    return msgspec.structs.replace(request, messages=messages)


def _refusal(image: Image, reason: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"Invalid image: {reason}.", param=image.param)
