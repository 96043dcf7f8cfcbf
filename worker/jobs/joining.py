"""The start of a worker: it waits for the store, and checks that it may join the fleet."""

import asyncio
import logging
import time

from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.protocol.registry import LeaseMismatch, WorkerInfo, check_lease, registered
from shared.redis.url import parse_url
from shared.runtime.ticks import until

logger = logging.getLogger(__name__)

_RETRY = 1.0
_REPEAT = 10.0
"""Seconds between two lines about a store that does not respond."""


async def join_fleet(redis: Redis, url: str, *, lease: float, stopping: asyncio.Event) -> None:
    """Return when the store at ``url`` responds, or ``stopping`` is set.

    Raises :class:`LeaseMismatch` if workers have another lease than ``lease`` seconds, and do not disappear within it.
    """
    started = time.monotonic()
    reported = 0.0
    while not stopping.is_set():
        now = time.monotonic()
        try:
            check_lease(await registered(redis, WorkerInfo), lease)
            return
        except LeaseMismatch as mismatch:
            # The record of a worker that was killed remains for a lease.
            if now - started > mismatch.lease + _RETRY:
                raise
        except (RedisError, OSError) as error:
            if not reported or now - reported > _REPEAT:
                reported = now
                logger.warning("waits for the store at %s: %s", parse_url(url), error)
        await until(stopping, _RETRY)
