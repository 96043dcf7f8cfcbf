"""Stored completions (``store: true``), kept in the store with a TTL."""

import logging
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import msgspec
from arq.connections import ArqRedis
from redis.exceptions import RedisError, ResponseError

from api.paging import read_page
from api.store_errors import store_errors
from shared.redis import keys
from shared.redis.records import UNREADABLE, is_wrong_type, report_unreadable
from shared.redis.scripts import Script

logger = logging.getLogger(__name__)

_SCAN = 100
"""Entries read per round trip."""

_PAGE_BYTES = 8 * 2**20
"""Size of a page in bytes beyond which it gets no more completions. Each may have megabytes."""

_TAG = """
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'metadata', ARGV[1])
return 1
"""
"""Sets the metadata of an entry, unless the entry has expired."""


class StoredCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """A stored response. ``document`` is its JSON body, ``messages`` the JSON array of the request's messages."""

    id: str
    model: str
    document: bytes
    messages: bytes
    metadata: Mapping[str, str] = {}


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A page of completions: at most ``limit`` after the id ``after``, filtered by model and metadata."""

    after: str | None = None
    limit: int = 20
    newest_first: bool = False
    model: str | None = None
    metadata: Mapping[str, str] = {}


class CompletionStore:
    """The stored completions, separated by owner: the id of an API key, or empty without one.

    Every method but :meth:`save` raises :class:`RequestRefused` when the store is unreachable.
    """

    def __init__(self, redis: ArqRedis, *, ttl: float, limit: int, max_bytes: int) -> None:
        """Completions are kept for ``ttl`` seconds, and the newest ``limit`` per owner.

        Large ones are deleted, the oldest first, when those of an owner have more than ``max_bytes`` together.
        """
        self._redis = redis
        self._ttl = ttl
        self._limit = limit
        self._max_bytes = max_bytes
        self._tag = Script(redis, _TAG, ("hash",))
        self._save = Script(redis, (files("api") / "save.lua").read_text(), ("hash", "zset", "hash"))

    async def save(self, owner: str, completion: StoredCompletion, *, fulfils: tuple[str, str] | None = None) -> bool:
        """Store ``completion``; return whether that succeeded. Failures are only logged.

        ``fulfils`` is the key and field of its pending completion (see :mod:`api.outbox`), removed atomically.
        """
        key, index = keys.stored(owner, completion.id), keys.stored_index(owner)
        outbox, entry = fulfils or (keys.outbox(""), "")
        fields: dict[str, bytes | str] = {
            "model": completion.model,
            "metadata": msgspec.json.encode(completion.metadata),
            "document": completion.document,
            "messages": completion.messages,
        }
        settings = (
            completion.id,
            int(self._ttl * 1000),
            self._limit,
            self._max_bytes,
            keys.stored(owner, ""),
            entry,
            "",
        )
        try:
            await self._save([key, index, outbox], [*settings, *(part for pair in fields.items() for part in pair)])
        except (RedisError, OSError) as error:
            logger.warning("completion %s not stored: %s", completion.id, error)
            return False
        return True

    async def get(self, owner: str, completion_id: str) -> StoredCompletion | None:
        """Return a completion, or ``None`` if it does not exist or has expired."""
        async with store_errors():
            try:
                fields: dict[bytes, bytes] = await self._redis.hgetall(keys.stored(owner, completion_id))  # type: ignore[misc]
            except ResponseError as error:
                if not is_wrong_type(error):
                    raise
                report_unreadable(keys.stored(owner, completion_id), error)
                return None
        return _decode(keys.stored(owner, completion_id), completion_id, fields) if fields else None

    async def tag(self, owner: str, completion_id: str, metadata: Mapping[str, str]) -> bool:
        """Replace a completion's metadata; return whether it exists."""
        async with store_errors():
            found = await self._tag([keys.stored(owner, completion_id)], [msgspec.json.encode(metadata)])
        return bool(found)

    async def delete(self, owner: str, completion_id: str) -> bool:
        """Delete a completion; return whether it existed."""
        async with store_errors():
            await self._redis.zrem(keys.stored_index(owner), completion_id)
            return bool(await self._redis.delete(keys.stored(owner, completion_id)))

    async def select(self, owner: str, wanted: Selection) -> tuple[list[StoredCompletion], bool] | None:
        """Return a page of completions ordered by age, and whether there are more. Large completions make it shorter.

        Returns ``None`` when there is no completion with the id ``after``.
        """
        index = keys.stored_index(owner)
        async with store_errors():
            if (kind := await self._redis.type(index)) not in (b"zset", b"none"):
                # Replaced when the next completion is stored.
                report_unreadable(index, ValueError(f"its type is {kind.decode()}"))
                return [], False
            found = await read_page(
                self._redis,
                index,
                lambda names: self._matching(owner, names, wanted),
                after=wanted.after,
                limit=wanted.limit,
                scan=_SCAN,
                newest_first=wanted.newest_first,
            )
            if found is None:
                return None
            names, more = found
            page: list[StoredCompletion] = []
            size = 0
            for place, name in enumerate(names):
                if (completion := await self.get(owner, name)) is None:
                    continue
                page.append(completion)
                size += len(completion.document) + len(completion.messages)
                if size > _PAGE_BYTES:
                    more = more or place + 1 < len(names)
                    break
        return page, more

    async def _matching(self, owner: str, names: list[str], wanted: Selection) -> list[str]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hmget(keys.stored(owner, name), ["model", "metadata"])
            rows = await pipe.execute(raise_on_error=False)
        return [name for name, row in zip(names, rows, strict=True) if _matches(keys.stored(owner, name), row, wanted)]


def _matches(key: str, row: Any, wanted: Selection) -> bool:
    """Return whether a completion matches ``wanted``. Unreadable ones do not."""
    if isinstance(row, Exception):
        if not is_wrong_type(row):
            raise row
        report_unreadable(key, row)
        return False
    model, metadata = row
    if model is None:
        return False
    try:
        tags = msgspec.json.decode(metadata or b"", type=dict[str, str])
        return (wanted.model is None or wanted.model == model.decode()) and wanted.metadata.items() <= tags.items()
    except UNREADABLE as error:
        report_unreadable(key, error)
        return False


def _decode(key: str, completion_id: str, fields: Mapping[bytes, bytes]) -> StoredCompletion | None:
    """Return the completion under ``key``, or ``None`` if it is unreadable."""
    try:
        msgspec.json.decode(fields.get(b"document", b""), type=dict[str, msgspec.Raw])
        msgspec.json.decode(fields.get(b"messages", b""), type=list[dict[str, msgspec.Raw]])
        return StoredCompletion(
            id=completion_id,
            model=fields.get(b"model", b"").decode(),
            document=fields[b"document"],
            messages=fields[b"messages"],
            metadata=msgspec.json.decode(fields.get(b"metadata", b""), type=dict[str, str]),
        )
    except UNREADABLE as error:
        report_unreadable(key, error)
        return None
