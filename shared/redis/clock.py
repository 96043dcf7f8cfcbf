"""The store's clock: the only one that processes share. What one process writes and another compares is timed by it."""

import time

from redis.asyncio import Redis


async def store_time(redis: Redis) -> float:
    """Return the store's time (Unix seconds). Raises what redis-py raises when the store can't be reached."""
    seconds, microseconds = await redis.time()
    return float(seconds) + float(microseconds) / 1e6


class StoreClock:
    """The store's time between two looks at it; this process's wall clock until the first one."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    def set(self, now: float) -> None:
        """Set the clock to ``now``, the store's time."""
        self._ahead = now - time.monotonic()

    def now(self) -> float:
        """Return the time (Unix seconds)."""
        return time.time() if self._ahead is None else time.monotonic() + self._ahead
