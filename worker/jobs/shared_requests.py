"""Requests shared by several jobs, read from the store once for all jobs that this worker claims."""

import asyncio
import logging
from collections import OrderedDict

from redis.exceptions import RedisError

from shared.protocol.queue import JobQueue
from shared.protocol.request import ChatRequest, Job, QueuedJob
from shared.redis.records import is_wrong_type

logger = logging.getLogger(__name__)

_CACHED = 4
"""Requests cached while this worker has jobs, for further jobs of the same request."""

_RETRY = 0.1
"""Seconds between two reads while the store is unreachable."""


class RequestGone(Exception):
    """The shared request of a job is not in the store any more."""


class SharedRequests:
    """Adds the shared request to jobs whose payload does not contain it."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self._cache: OrderedDict[str, ChatRequest] = OrderedDict()
        self._reading = asyncio.Lock()

    async def complete(self, queued: QueuedJob) -> Job:
        """Return the job with its request. Retries while the store is unreachable.

        Raises :class:`RequestGone`, and :class:`msgspec.DecodeError` for invalid bytes.
        """
        request = queued.inline_request()
        if request is not None:
            return queued.job(request)
        name = queued.id.rpartition(":")[0]
        async with self._reading:
            request = self._cache.pop(name, None) or await self._read(name)
            self._cache[name] = request
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        return queued.job(request)

    def clear(self) -> None:
        """Clear the cache: this worker has no jobs."""
        self._cache.clear()

    async def _read(self, name: str) -> ChatRequest:
        while True:
            try:
                request = await self._queue.shared_request(name)
            except (RedisError, OSError) as error:
                if is_wrong_type(error):
                    raise RequestGone(f"request {name} is not readable: {error}") from None
                logger.debug("request %s not read yet, the store is unreachable: %s", name, error)
                await asyncio.sleep(_RETRY)
                continue
            if request is None:
                raise RequestGone(f"request {name} is not in the store")
            return request
