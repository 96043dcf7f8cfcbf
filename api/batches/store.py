"""Batches in the store: records, leases and commits.

A replica that feeds a batch has claimed it and renews its lease. Everything that it writes goes through one script,
which refuses replicas whose claim is not the newest and records based on an older revision than the store's. A replica
that was suspended, or whose store has lost its last second in a crash, can therefore not overwrite later records.
"""

from collections.abc import Collection, Sequence
from importlib.resources import files
from typing import Any, NamedTuple, cast

import msgspec
from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from api.batches.record import Batch, is_batch_id
from api.keys.audit import log_change
from api.records.errors import store_errors
from api.records.paging import keep_place, read_page
from shared.protocol.errors import ProblemKind, refuse
from shared.redis import keys
from shared.redis.clock import store_time
from shared.redis.records import decode_record

LEASE = 6.0
"""Duration of a feeder's lease in seconds. Another replica takes over when it has expired."""

RETENTION = 30 * 86_400
"""For how many seconds batches that have ended are kept."""

MAX_UNFINISHED = 100
"""Maximum number of unfinished batches of an owner."""

MAX_BATCHES = 10_000
"""Maximum number of batches of an owner. Beyond it, the oldest that have ended are deleted."""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Batch)


class Superseded(Exception):
    """Another replica has claimed the batch, or the store has lost its newest records."""


class BatchClaim(NamedTuple):
    """A claim of a batch by this replica. ``done`` has a bit for each request, set if its result was committed."""

    batch: Batch
    epoch: int
    revision: int
    done: bytes
    cancelling: int | None
    """When its owner asked to cancel it (Unix seconds)."""


class BatchStore:
    """The batches of all owners.

    Methods for clients raise :class:`RequestRefused` when the store is unreachable; those for feeders, :meth:`claim`,
    :meth:`commit`, :meth:`renew` and :meth:`release`, raise what redis-py raises.
    """

    def __init__(self, redis: Redis, *, limit: int) -> None:
        """``limit`` is the maximum number of unfinished batches of an owner."""
        self._redis = redis
        self._limit = limit
        self._create = _script(redis, "create")
        self._claim = _script(redis, "claim")
        self._commit = _script(redis, "commit")

    async def now(self) -> float:
        """Return the store's time (Unix seconds)."""
        async with store_errors():
            return await store_time(self._redis)

    async def create(self, batch: Batch) -> None:
        """Add a batch. Raises :class:`RequestRefused` if the owner has as many unfinished ones as allowed.

        Deletes the owner's oldest batches that have ended, beyond :data:`MAX_BATCHES`.
        """
        async with store_errors():
            now = await store_time(self._redis)
            created = await self._create(
                [keys.batch(batch.id), keys.batch_index(batch.owner), keys.UNFINISHED_BATCHES],
                [batch.id, _encode(batch), f"{now:.6f}", self._limit, MAX_BATCHES, 2 * RETENTION, keys.batch("")],
            )
        if not created:
            raise refuse(
                ProblemKind.RATE_LIMITED,
                f"There are {self._limit} unfinished batches, the maximum. Wait until one of them has ended, or cancel "
                "one.",
                code="batch_limit_exceeded",
            )

    async def get(self, owner: str, batch_id: str) -> Batch | None:
        if not is_batch_id(batch_id):
            return None
        async with store_errors():
            (found,) = await self._read([batch_id])
        return found if found is not None and found.owner == owner else None

    async def cancel(self, batch: Batch, *, by: str) -> None:
        """Log that ``by`` asks to cancel ``batch`` (:mod:`api.keys.audit`), and then ask its feeder."""
        async with store_errors():
            now = int(await store_time(self._redis))
            await log_change(self._redis, by, "batch.cancelled", batch.id)
            await cast("Any", self._redis.hsetnx(keys.batch(batch.id), "cancelling", str(now)))

    async def select(self, owner: str, *, after: str | None, limit: int) -> tuple[list[Batch], bool]:
        """Return a page of the batches of ``owner``, newest first, and whether there are more."""
        index = keys.batch_index(owner)
        async with store_errors():
            page, more = await read_page(self._redis, index, self._readable, after=after, limit=limit, scan=limit + 1)
            if more:
                await keep_place(self._redis, index, page[-1].id)
        return page, more

    async def reading(self, owner: str, file_id: str) -> str | None:
        """Return the id of an unfinished batch of ``owner`` whose input is ``file_id``, if there is one."""
        async with store_errors():
            names = await self._redis.zinter([keys.batch_index(owner), keys.UNFINISHED_BATCHES])
            found = await self._readable([name.decode() for name in names])
        return next((batch.id for batch in found if batch.input_file == file_id), None)

    async def unfinished(self) -> int:
        """Return the number of unfinished batches. Raises what redis-py raises."""
        return int(await self._redis.zcard(keys.UNFINISHED_BATCHES))

    async def waiting(self) -> int:
        """Return the number of unfinished batches that no replica feeds. Raises what redis-py raises."""
        now = await store_time(self._redis)
        return int(await self._redis.zcount(keys.UNFINISHED_BATCHES, "-inf", int(now * 1000)))

    async def current(self, also: Collection[str], *, limit: int) -> list[Batch]:
        """Return the unfinished batches of all owners, at most ``limit``, and those of ``also`` that are kept.

        Raises what redis-py raises.
        """
        found = await self._redis.zrange(keys.UNFINISHED_BATCHES, 0, limit - 1)
        names = sorted({*(name.decode() for name in found), *also})
        return await self._readable(names) if names else []

    async def claim(self, most: int) -> list[BatchClaim]:
        """Claim up to ``most`` batches that no replica feeds."""
        rows = await self._claim([keys.UNFINISHED_BATCHES], [keys.batch(""), int(LEASE * 1000), most])
        claims = []
        for name, epoch, revision, record, done, cancelling in rows:
            batch = decode_record(_decoder, keys.batch(name.decode(errors="replace")), record)
            if batch is None:
                await self._redis.zrem(keys.UNFINISHED_BATCHES, name)
            else:
                claims.append(BatchClaim(batch, epoch, revision, done, _time(cancelling)))
        return claims

    async def commit(self, claim: BatchClaim, batch: Batch, done: bytes, *, ended: bool = False) -> BatchClaim:
        """Write ``batch`` and the requests that are done; return the claim after that. Raises :class:`Superseded`."""
        cancelling = await self._write(claim, _encode(batch), done, RETENTION * 1000 if ended else "")
        return BatchClaim(batch, claim.epoch, claim.revision + 1, done, cancelling)

    async def renew(self, claim: BatchClaim) -> BatchClaim:
        """Renew the lease; return the claim after that. Raises :class:`Superseded`."""
        return claim._replace(cancelling=await self._write(claim, "", b"", ""))

    async def release(self, claim: BatchClaim) -> None:
        """End the lease, so that another replica can claim the batch at once."""
        try:
            await self._write(claim, "", b"", "", lease_ms=0)
        except Superseded:
            pass

    async def _write(
        self, claim: BatchClaim, record: bytes | str, done: bytes, ttl: int | str, lease_ms: int = int(LEASE * 1000)
    ) -> int | None:
        """Run the commit script; return when the owner asked to cancel the batch."""
        written, *cancelling = await self._commit(
            [keys.batch(claim.batch.id), keys.UNFINISHED_BATCHES],
            [claim.batch.id, claim.epoch, claim.revision, record, done, lease_ms, ttl],
        )
        if not written:
            raise Superseded
        return _time(cancelling[0])

    async def _readable(self, names: Sequence[str]) -> list[Batch]:
        return [batch for batch in await self._read(names) if batch is not None]

    async def _read(self, names: Sequence[str]) -> list[Batch | None]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hmget(keys.batch(name), ["record", "cancelling"])
            rows = await pipe.execute()
        return [_visible(name, row) for name, row in zip(names, rows, strict=True)]


def _visible(name: str, row: Sequence[bytes | None]) -> Batch | None:
    """Return a batch as its owner sees it: ``cancelling`` from the moment of the request."""
    record, cancelling = row
    batch = decode_record(_decoder, keys.batch(name), record)
    if batch is not None and cancelling and batch.outcome in (None, "cancelled") and batch.status in _CANCELLABLE:
        return batch.at("cancelling", int(cancelling))
    return batch


def _time(stored: bytes) -> int | None:
    return int(stored) if stored.isdigit() else None


_CANCELLABLE = ("validating", "in_progress", "finalizing")


def _script(redis: Redis, name: str) -> AsyncScript:
    return redis.register_script((files("api.batches") / f"{name}.lua").read_text())
