"""Placement leases in the store: two nodes never load a model for the same need."""

from importlib.resources import files
from typing import cast

from redis.asyncio import Redis

from shared.redis import keys

_PLACE = (files("worker.node") / "place.lua").read_text()


class Placements:
    """The placement leases of one node. All methods raise what redis-py raises."""

    def __init__(self, redis: Redis, node: str, *, lease: float) -> None:
        """``node`` is the node's id. ``lease`` is the duration of a lease in seconds."""
        self._redis = redis
        self._node = node
        self._lease_ms = int(lease * 1000)
        self._place = redis.register_script(_PLACE)

    async def take(self, model: str, most: int) -> bool:
        """Take or renew the lease of ``model``. Return False if ``most`` other nodes have one."""
        return bool(await self._place([keys.placements(model)], (self._node, self._lease_ms, most)))

    async def release(self, model: str) -> None:
        """Give the lease of ``model`` back."""
        await self._redis.zrem(keys.placements(model), self._node)

    async def count(self, model: str) -> int:
        """Return how many nodes have a lease of ``model``. Leases that have just ended may count."""
        return cast(int, await self._redis.zcard(keys.placements(model)))
