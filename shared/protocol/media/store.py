"""The Python interface to the media store's scripts."""

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from redis.asyncio import Redis

from shared.protocol.queue.emitter import JOB_TTL_MS
from shared.redis import keys
from shared.redis.scripts import Script, text_with_prelude

_PACKAGE = "shared.protocol.media"
_KEYS = [keys.MEDIA_HOLDS, keys.MEDIA_SIZES]


class MediaFull(Exception):
    """Nothing was stored, because the files exceed the media store's limit."""


class MediaStore:
    """Holds, fetches and releases files. All methods raise what redis-py raises when the store is unreachable."""

    def __init__(self, redis: Redis, *, limit: int = 0, ttl_ms: int = JOB_TTL_MS) -> None:
        """``limit`` is the maximum size of all files in bytes. A hold that is never released expires after ``ttl_ms``,
        by default with the job's records."""
        self._redis: Any = redis
        self._limit = limit
        self._ttl_ms = ttl_ms
        self._hold = Script(redis, text_with_prelude(_PACKAGE, "hold"), ("zset", "hash"))
        self._release = Script(redis, text_with_prelude(_PACKAGE, "release"), ("zset", "hash"))

    async def hold(self, request: str, media: Mapping[str, bytes]) -> None:
        """Store the files in ``media``, by digest, until :meth:`release` is called for the request with the same id.

        Raises :class:`MediaFull`, without storing anything.
        """
        parts = [part for pair in media.items() for part in pair]
        if not await self._hold(_KEYS, [keys.MEDIA_PREFIX, self._ttl_ms, self._limit, request, *parts]):
            raise MediaFull

    async def release(self, request: str, digests: Collection[str]) -> None:
        """Delete the files that no other request holds."""
        await self._release(_KEYS, [keys.MEDIA_PREFIX, request, *digests])

    async def fetch(self, digests: Sequence[str]) -> list[bytes | None]:
        """Return the files with these digests; ``None`` for those that are not stored."""
        found: list[bytes | None] = await self._redis.mget([keys.media(digest) for digest in digests])
        return found


def digest_of(file: bytes) -> str:
    """Return the digest by which ``file`` is stored: SHA-256 in hexadecimal digits."""
    return sha256(file).hexdigest()
