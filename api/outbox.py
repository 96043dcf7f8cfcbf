"""Promises to store an answer (``store: true``), in Redis, so that they outlive the replica that gave them.

Each replica's promises are a hash of its own. When it has gone, others move them into theirs: so a promise always has
one holder, and the death of the second is no other case than that of the first.
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
"""Seconds for which a promise is kept beyond the time that its request may take: as long as journals are."""

_MOST_TAKEN = 64
"""Promises that a replica takes over at a time, so that several replicas share those of one that has gone."""


class PendingCompletion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What another replica needs to finish an answer. Times are in seconds, ``accepted`` is Unix time, for people.

    ``answer_id`` is the answer's identity before a dialect prefixes it, ``messages`` the JSON array that was sent.
    """

    answer_id: str
    accepted: float
    request: ChatRequest
    messages: bytes
    jobs: tuple[str, ...]
    tenant: str = ""
    queue_timeout: float | None = None
    given: float | None = None
    """The store's time at which the promise was given; set by :meth:`Outbox.add`."""
    reserved: tuple[str, int] | None = None
    """Name and tokens of the reservation where the key has limits (see :class:`api.limits.Reservation`)."""


_ADD = """#!lua
-- Gives a promise.
-- KEYS: promises of the replica, owners
-- ARGV: answer, promise, replica, TTL (ms)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('SADD', KEYS[2], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
"""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(PendingCompletion)


class Outbox:
    """The promises of all replicas, as one of them deals with them. Each method raises what redis-py raises."""

    def __init__(self, redis: ArqRedis, replica: str, *, longest: float) -> None:
        """``longest`` is the most seconds that a request can take."""
        self._redis = redis
        self._replica = replica
        self._own = keys.outbox(replica)
        self._ttl_ms = int((longest + LINGER) * 1000)
        self._add = Script(redis, _ADD, ("hash", "set"))
        self._take_over = Script(redis, (files("api") / "take_over.lua").read_text(), ("hash", "hash", "set", "string"))

    def entry(self, answer_id: str) -> tuple[str, str]:
        """The key and the field in which this replica's promise of an answer lies."""
        return self._own, answer_id

    async def add(self, promise: PendingCompletion) -> None:
        """Give a promise: this replica sees to it while it lives, another one after that."""
        promise = msgspec.structs.replace(promise, given=await self.now())
        await self._add(
            [self._own, keys.OUTBOX_OWNERS], [promise.answer_id, _encode(promise), self._replica, self._ttl_ms]
        )

    async def now(self) -> float:
        """The store's time (Unix seconds), by which promises are timed."""
        return await store_time(self._redis)

    async def remove(self, answer_id: str) -> bool:
        """Take back a promise of this replica; return whether there was one."""
        return bool(await self._redis.hdel(*self.entry(answer_id)))  # type: ignore[misc]

    async def owners(self) -> set[str]:
        """The replicas, this one and those that have gone included, that may hold promises."""
        members: set[bytes] = await self._redis.smembers(keys.OUTBOX_OWNERS)  # type: ignore[misc]
        return set(readable_names(keys.OUTBOX_OWNERS, members))

    async def take_over(self, gone: str) -> int:
        """Make some promises of ``gone`` this replica's own; return how many. None are while it is in the registry."""
        moved = await self._take_over(
            [keys.outbox(gone), self._own, keys.OUTBOX_OWNERS, keys.replica(gone)],
            [gone, self._replica, _MOST_TAKEN, self._ttl_ms],
        )
        return int(moved)

    async def own(self, *, but: Iterable[str]) -> list[PendingCompletion]:
        """This replica's promises, but for those of the answers ``but``. What can't be read is dropped."""
        names: list[bytes] = await self._redis.hkeys(self._own)  # type: ignore[misc]
        wanted = sorted(set(readable_names(self._own, names)).difference(but))
        if not wanted:
            return []
        values = cast("list[bytes | None]", await self._redis.hmget(self._own, wanted))  # type: ignore[misc]
        promises = []
        for name, value in zip(wanted, values, strict=True):
            try:
                if value is not None:
                    promises.append(_decoder.decode(value))
            except UNREADABLE as error:
                logger.error("the promise to store answer %s can't be read and is dropped: %s", name, error)
                await self.remove(name)
        return promises
