"""The outbox: pending completions of requests with ``store: true``, kept in the store so that they survive the replica.

Each replica has its own hash. When a replica has gone, others move its entries into their own. A pending completion
therefore has exactly one owner at any time, and the loss of the second owner is handled like the loss of the first.
"""

import logging
from collections.abc import Iterable
from importlib.resources import files
from typing import cast

import msgspec
from arq.connections import ArqRedis

from shared.protocol.request import ChatRequest
from shared.redis import keys
from shared.redis.clock import store_time
from shared.redis.records import UNREADABLE, readable_names
from shared.redis.scripts import Script

logger = logging.getLogger(__name__)

LINGER = 60.0
"""Seconds by which a pending completion outlives its request's timeout; the same as for journals."""

_MAX_TAKEN = 64
"""Maximum pending completions taken over per pass, so that several replicas share those of a lost one."""


class PendingCompletion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record from which another replica can finish and store a response. Times are in seconds.

    ``answer_id`` is the response's id without the dialect's prefix. ``accepted`` is the Unix time shown to clients.
    ``messages`` is the JSON array that the client sent.
    """

    answer_id: str
    accepted: float
    request: ChatRequest
    messages: bytes
    jobs: tuple[str, ...]
    tenant: str = ""
    queue_timeout: float | None = None
    given: float | None = None
    """The store's Unix time when the record was added; set by :meth:`Outbox.add`."""
    reserved: tuple[str, int] | None = None
    """Name and tokens of the reservation, if the key has limits (see :class:`api.limits.Reservation`)."""


_ADD = """#!lua
-- Adds a pending completion to a replica's outbox.
-- KEYS: outbox, owners
-- ARGV: answer id, pending completion, replica, TTL (ms)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('SADD', KEYS[2], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
"""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(PendingCompletion)


class Outbox:
    """One replica's access to its own outbox and those of lost replicas. Methods raise what redis-py raises."""

    def __init__(self, redis: ArqRedis, replica: str, *, max_duration: float) -> None:
        """``max_duration`` is the maximum duration of a request in seconds."""
        self._redis = redis
        self._replica = replica
        self._own = keys.outbox(replica)
        self._ttl_ms = int((max_duration + LINGER) * 1000)
        self._add = Script(redis, _ADD, ("hash", "set"))
        self._take_over = Script(redis, (files("api") / "take_over.lua").read_text(), ("hash", "hash", "set", "string"))

    def entry(self, answer_id: str) -> tuple[str, str]:
        """Return the key and field of a pending completion in this replica's outbox."""
        return self._own, answer_id

    async def add(self, pending: PendingCompletion) -> None:
        """Add a pending completion to this replica's outbox."""
        pending = msgspec.structs.replace(pending, given=await self.now())
        await self._add(
            [self._own, keys.OUTBOX_OWNERS], [pending.answer_id, _encode(pending), self._replica, self._ttl_ms]
        )

    async def now(self) -> float:
        """Return the store's time (Unix seconds), on which all ages are based."""
        return await store_time(self._redis)

    async def remove(self, answer_id: str) -> bool:
        """Remove a pending completion from this replica's outbox; return whether it existed."""
        return bool(await self._redis.hdel(*self.entry(answer_id)))  # type: ignore[misc]

    async def owners(self) -> set[str]:
        """Return the replicas that may have an outbox, including this one and those that have gone."""
        members: set[bytes] = await self._redis.smembers(keys.OUTBOX_OWNERS)  # type: ignore[misc]
        return set(readable_names(keys.OUTBOX_OWNERS, members))

    async def take_over(self, gone: str) -> int:
        """Move up to :data:`_MAX_TAKEN` entries from the outbox of ``gone`` to this replica's; return how many.

        Moves nothing while ``gone`` is in the registry.
        """
        moved = await self._take_over(
            [keys.outbox(gone), self._own, keys.OUTBOX_OWNERS, keys.replica(gone)],
            [gone, self._replica, _MAX_TAKEN, self._ttl_ms],
        )
        return int(moved)

    async def own(self, *, but: Iterable[str]) -> list[PendingCompletion]:
        """Return this replica's pending completions except those named in ``but``. Unreadable ones are removed."""
        names: list[bytes] = await self._redis.hkeys(self._own)  # type: ignore[misc]
        wanted = sorted(set(readable_names(self._own, names)).difference(but))
        if not wanted:
            return []
        values = cast("list[bytes | None]", await self._redis.hmget(self._own, wanted))  # type: ignore[misc]
        readable = []
        for name, value in zip(wanted, values, strict=True):
            try:
                if value is not None:
                    readable.append(_decoder.decode(value))
            except UNREADABLE as error:
                logger.error("pending completion %s cannot be read and is removed: %s", name, error)
                await self.remove(name)
        return readable
