"""The stored responses of the Responses API, kept in the store with a TTL and separated by owner."""

import logging
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple, cast

from arq.connections import ArqRedis
from redis.exceptions import RedisError, ResponseError

from api.responses.record import StoredResponse, from_fields, is_response_id, to_fields
from api.store_errors import store_errors
from shared.redis import keys
from shared.redis.clock import store_time
from shared.redis.records import UNREADABLE, is_wrong_type, report_unreadable
from shared.redis.scripts import Script

logger = logging.getLogger(__name__)

_JOURNAL_READ = 4096
"""Maximum number of journalled events that are read at a time."""


class Progress(NamedTuple):
    """Progress of a background response that runs."""

    started: bool
    """Whether a worker has started its job."""
    age: float
    """Seconds since it was stored, by the store's clock."""


class ResponseStore:
    """Stored responses. The owner is the id of an API key, or empty without one.

    Methods raise :class:`RequestRefused` when the store is unreachable, unless they say otherwise.
    """

    def __init__(self, redis: ArqRedis, *, ttl: float, limit: int, max_bytes: int) -> None:
        """The limits are those of :class:`api.stored.CompletionStore`."""
        self._redis = redis
        self._ttl_ms = int(ttl * 1000)
        self._limit = limit
        self._max_bytes = max_bytes
        self.followers = 0
        """Number of streams that read journals in this replica (:func:`api.responses.replay.follow`)."""
        self._save = Script(redis, (files("api") / "save.lua").read_text(), ("hash", "zset", "hash"))
        self._end = Script(redis, (files("api.responses") / "end.lua").read_text(), ("hash", "list", "list", "hash"))

    async def create(self, owner: str, record: StoredResponse) -> None:
        """Store ``record``."""
        async with store_errors():
            await self._create(owner, record, (keys.outbox(""), ""))

    async def save(self, owner: str, record: StoredResponse, *, fulfils: tuple[str, str]) -> bool:
        """Store a response that has ended; return whether that succeeded. Failures are only logged.

        ``fulfils`` is the key and field of its pending completion (see :mod:`api.outbox`), removed atomically. A
        background response that was deleted or has ended otherwise stays as it is.
        """
        try:
            if record.job:
                await self._finish(owner, record, fulfils)
            else:
                await self._create(owner, record, fulfils)
        except (RedisError, OSError) as error:
            logger.warning("response %s not stored: %s", record.id, error)
            return False
        return True

    async def end(self, owner: str, record: StoredResponse) -> bool:
        """End the background response ``record`` with its document; return whether it was running."""
        async with store_errors():
            return await self._finish(owner, record, (keys.outbox(""), ""))

    async def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response; None if it does not exist or has expired."""
        if not is_response_id(response_id):
            return None
        key = keys.stored_response(owner, response_id)
        async with store_errors():
            try:
                fields: dict[bytes, bytes] = await cast("Any", self._redis.hgetall(key))
            except ResponseError as error:
                if not is_wrong_type(error):
                    raise
                report_unreadable(key, error)
                return None
        if not fields:
            return None
        try:
            return from_fields(response_id, fields)
        except (*UNREADABLE, KeyError) as error:
            report_unreadable(key, error)
            return None

    async def keep(self, owner: str, response_ids: Sequence[str]) -> None:
        """Keep responses as long as one that is stored now, and count them as new ones, in the given order."""
        index = keys.stored_response_index(owner)
        async with store_errors():
            now = await store_time(self._redis)
            ages = {response_id: now + place / 1e6 for place, response_id in enumerate(response_ids)}
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.zadd(index, ages, xx=True)
                for key in (index, *(keys.stored_response(owner, response_id) for response_id in response_ids)):
                    pipe.pexpire(key, self._ttl_ms)
                await pipe.execute()

    async def delete(self, owner: str, response_id: str) -> bool:
        """Delete a response; return whether it existed."""
        async with store_errors():
            await self._redis.zrem(keys.stored_response_index(owner), response_id)
            await self._redis.delete(keys.kept_journal(owner, response_id))
            return bool(await self._redis.delete(keys.stored_response(owner, response_id)))

    async def progress(self, owner: str, record: StoredResponse) -> Progress:
        """Return the progress of a background response that runs."""
        async with store_errors():
            now = await store_time(self._redis)
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.exists(keys.journal(record.job))
                pipe.zscore(keys.stored_response_index(owner), record.id)
                started, stored_at = await pipe.execute()
        return Progress(bool(started), now - stored_at if stored_at is not None else 0.0)

    async def journal(self, owner: str, record: StoredResponse, start: int) -> tuple[bool, list[bytes]]:
        """Return whether a background response still runs, and the events of its job from the index ``start`` on.

        As long as there are more events, the response seems to run.
        """
        stop = start + _JOURNAL_READ - 1
        async with store_errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hexists(keys.stored_response(owner, record.id), "job")
            pipe.lrange(keys.journal(record.job), start, stop)
            pipe.lrange(keys.kept_journal(owner, record.id), start, stop)
            running, current, kept = await pipe.execute(raise_on_error=False)
        for reply in (running, current, kept):
            if isinstance(reply, Exception):
                if not is_wrong_type(reply):
                    raise reply
                report_unreadable(keys.stored_response(owner, record.id), reply)
                return False, []
        events: list[bytes] = current if running else kept
        return bool(running) or len(events) == _JOURNAL_READ, events

    async def _create(self, owner: str, record: StoredResponse, fulfils: tuple[str, str]) -> None:
        outbox, entry = fulfils
        settings: list[Any] = [
            record.id,
            self._ttl_ms,
            self._limit,
            self._max_bytes,
            keys.stored_response(owner, ""),
            entry,
            keys.kept_journal(owner, ""),
        ]
        for pair in to_fields(record).items():
            settings += pair
        await self._save([keys.stored_response(owner, record.id), keys.stored_response_index(owner), outbox], settings)

    async def _finish(self, owner: str, record: StoredResponse, fulfils: tuple[str, str]) -> bool:
        outbox, entry = fulfils
        names = [
            keys.stored_response(owner, record.id),
            keys.journal(record.job),
            keys.kept_journal(owner, record.id),
            outbox,
        ]
        return bool(await self._end(names, [record.document, self._ttl_ms, entry]))
