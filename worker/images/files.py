"""Fetches the image files of requests from the store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from redis.exceptions import RedisError

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import Job
from shared.redis.records import is_wrong_type

logger = logging.getLogger(__name__)

_RETRY = 0.1
"""Seconds between two reads while the store is unreachable."""

Fetch = Callable[[str, Sequence[str]], Awaitable[Sequence[bytes | None]]]
"""Returns the files of a shared request with these digests; ``None`` for those that are not stored."""


class RequestFiles:
    """The files of requests by digest."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def get(self, job: Job) -> Mapping[str, bytes]:
        """Return the files of the images in the request of ``job``. Retries while the store is unreachable.

        Raises :class:`~shared.protocol.errors.RequestRefused`, naming the image, if one is not stored any more.
        """
        params = {image.digest: image.param for image in reversed(job.request.images)}
        files = {}
        for digest, file in zip(params, await self._read(job.shared_request, list(params)), strict=True):
            if file is None:
                raise refuse(
                    ProblemKind.LOST,
                    "The image is not in the store behind this service any more. Please send the request again.",
                    param=params[digest],
                )
            files[digest] = file
        return files

    async def _read(self, request: str, digests: Sequence[str]) -> Sequence[bytes | None]:
        while True:
            try:
                return await self._fetch(request, digests)
            except (RedisError, OSError) as error:
                if is_wrong_type(error):
                    return [None] * len(digests)
                logger.debug("images not read yet, the store is unreachable: %s", error)
                await asyncio.sleep(_RETRY)
