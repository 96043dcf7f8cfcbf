"""The store's clock: the only clock that processes share, used for all times that one writes and another compares."""

import time

from redis.asyncio import Redis


async def store_time(redis: Redis) -> float:
    """Return the store's time (Unix seconds). Raises what redis-py raises when the store is unreachable."""
    seconds, microseconds = await redis.time()
    return float(seconds) + float(microseconds) / 1e6


class StoreClock:
    """An estimate of the store's time: the last known one plus elapsed time; the wall clock until :meth:`set`."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    def set(self, now: float) -> None:
        self._ahead = now - time.monotonic()

    def now(self) -> float:
        """Return the time (Unix seconds)."""
        return time.time() if self._ahead is None else time.monotonic() + self._ahead
