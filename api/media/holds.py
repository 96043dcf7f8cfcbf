"""Holds of the files of admitted requests in the media store."""

import asyncio
import logging

from redis.exceptions import RedisError

from api.media.loader import MediaLoader
from api.media.shares import DownloadShares
from shared.protocol.errors import ProblemKind, refuse, store_unavailable
from shared.protocol.media import MediaFull, MediaStore
from shared.protocol.request import ChatRequest
from shared.redis import outage
from shared.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_RETRY = 1.0
"""``Retry-After`` in seconds while the media store is full."""


class MediaHolds:
    """Puts the files of requests into the media store, and releases them."""

    def __init__(self, loader: MediaLoader, shares: DownloadShares, store: MediaStore, tasks: BackgroundTasks) -> None:
        self._loader = loader
        self._shares = shares
        self._store = store
        self._tasks = tasks

    async def hold(self, answer_id: str, request: ChatRequest, *, tenant: str) -> ChatRequest:
        """Load the files of ``request`` and hold them under ``answer_id``; return the request that refers to them.

        Downloads count as those of ``tenant``. The caller must call :meth:`release`. Raises :class:`RequestRefused`,
        and then holds nothing.
        """
        with self._shares.request(tenant) as share:
            loaded, files = await self._loader.load(request, share)
            await self._put(answer_id, loaded, files)
        return loaded

    async def _put(self, answer_id: str, loaded: ChatRequest, files: dict[str, bytes]) -> None:
        try:
            await self._store.hold(answer_id, files)
        except MediaFull:
            raise refuse(
                ProblemKind.QUEUE_FULL,
                "The store for images is full of those of other requests. Please try again later.",
                retry_after=_RETRY,
            ) from None
        except (RedisError, OSError) as error:
            # The script may have run although its reply is lost.
            self.release(answer_id, loaded)
            raise store_unavailable() from error
        except asyncio.CancelledError:
            self.release(answer_id, loaded)
            raise

    def release(self, answer_id: str, request: ChatRequest) -> None:
        """Release the files of ``request`` in the background."""
        digests = {image.digest for image in request.images if image.digest}
        if digests:
            self._tasks.run(self._release(answer_id, digests), "release media")

    async def _release(self, answer_id: str, digests: set[str]) -> None:
        try:
            await self._store.release(answer_id, digests)
        except (RedisError, OSError) as error:
            # The holds expire.
            logger.log(outage.store.level, "images of a request not released: %s", error)
