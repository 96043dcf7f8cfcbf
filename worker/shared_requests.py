"""Requests that several jobs share, read from the store once for all jobs that this worker claims."""

import asyncio
import logging
from collections import OrderedDict

from redis.exceptions import RedisError

from shared.protocol.queue import JobQueue
from shared.protocol.request import ChatRequest, Job, QueuedJob
from shared.redis.records import is_wrong_type

logger = logging.getLogger(__name__)

_KEPT = 4
"""Requests that are kept while this worker has jobs, for those of their jobs that it claims later."""

_RETRY = 0.1
"""Seconds between two reads while the store is away."""


class RequestGone(Exception):
    """The request that a job shares with others is no longer in the store."""


class SharedRequests:
    """Completes jobs whose payload lacks the request."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self._kept: OrderedDict[str, ChatRequest] = OrderedDict()
        self._reading = asyncio.Lock()

    async def complete(self, queued: QueuedJob) -> Job:
        """Return the job with its request. An outage of the store is waited out.

        Raises :class:`RequestGone`, and :class:`msgspec.DecodeError` on foreign bytes.
        """
        request = queued.inline_request()
        if request is not None:
            return queued.job(request)
        name = queued.id.rpartition(":")[0]
        async with self._reading:
            request = self._kept.pop(name, None) or await self._read(name)
            self._kept[name] = request
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return queued.job(request)

    def clear(self) -> None:
        """Keep none: this worker has no jobs."""
        self._kept.clear()

    async def _read(self, name: str) -> ChatRequest:
        while True:
            try:
                request = await self._queue.shared_request(name)
            except (RedisError, OSError) as error:
                if is_wrong_type(error):
                    raise RequestGone(f"request {name} is not readable: {error}") from None
                logger.debug("request %s not read, Redis does not answer: %s", name, error)
                await asyncio.sleep(_RETRY)
                continue
            if request is None:
                raise RequestGone(f"request {name} is not in the store")
            return request
