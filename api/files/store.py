"""The files of all owners: records in the store, contents in the storage.

A record is added after its content is complete, and expires on its own. Contents without a record are deleted by
:class:`FileCleanup`.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import BinaryIO, cast

import msgspec
from redis.asyncio import Redis

from api.files.folder import FilesFolder, in_storage, opened
from api.files.record import FileRecord, is_file_id
from api.files.storage import Storage
from api.records.errors import store_errors
from api.records.paging import keep_place, read_page
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.redis import keys
from shared.redis.clock import store_time
from shared.redis.records import decode_record

MAX_FILES = 1000
"""Maximum number of files of an owner."""

logger = logging.getLogger(__name__)

MAX_UPLOADS = 8
"""Maximum number of files of one owner that are uploaded to this replica at a time."""

_PAGE = 500
"""Records read per round trip."""

_INTERVAL = 600.0
"""Mean number of seconds between two passes."""

_MIN_AGE = 3600.0
"""Seconds without a write after which a file without a record is deleted. Uploads take less, and a record is added
right after its content."""

_SWEPT_AT_A_TIME = 256

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(FileRecord)


class FileStore:
    """The files of all owners.

    Methods raise :class:`RequestRefused` when the store or the storage is unreachable.
    """

    def __init__(self, redis: Redis, folder: FilesFolder, *, limit: int, max_bytes: int) -> None:
        """``limit`` is the maximum number of files of an owner, ``max_bytes`` that of their bytes together."""
        self._redis = redis
        self._folder = folder
        self._limit = limit
        self._max_bytes = max_bytes
        self._uploads: Counter[str] = Counter()
        """Number of uploads in progress, by owner."""
        self._add = redis.register_script((files("api.files") / "add.lua").read_text())

    async def check(self) -> None:
        """Check the storage before the replica serves. Raises :class:`FilesDirError` if it can never be used."""
        await self._folder.check()

    async def storage(self) -> Storage:
        return await self._folder.storage()

    async def now(self) -> float:
        """Return the store's time (Unix seconds)."""
        async with store_errors():
            return await store_time(self._redis)

    @asynccontextmanager
    async def uploading(self, owner: str, size: int) -> AsyncIterator[None]:
        """Bound the uploads of ``owner``, of which this one has at least ``size`` bytes.

        Raises :class:`RequestRefused` if there is no room for it.
        """
        if self._uploads[owner] >= MAX_UPLOADS:
            raise refuse(
                ProblemKind.RATE_LIMITED,
                f"You are uploading {MAX_UPLOADS} files already, the maximum at a time. Please try again when one is "
                "complete.",
                code="rate_limit_exceeded",
                retry_after=1.0,
            )
        self._uploads[owner] += 1
        try:
            await self.require_room(owner, size)
            yield
        finally:
            self._uploads[owner] -= 1
            if not self._uploads[owner]:
                del self._uploads[owner]

    async def require_room(self, owner: str, size: int = 0, *, for_results: bool = False) -> None:
        """Raise :class:`RequestRefused` if ``owner`` has no room for a file of ``size`` bytes.

        There is twice as much room ``for_results``, which no parameter of a request names.
        """
        share, param = (2, None) if for_results else (1, "file")
        async with store_errors():
            await self._call("", owner, b"", size, ttl=1, now=0, share=share, param=param)

    async def add(self, record: FileRecord) -> None:
        """Add the record of a file whose content is complete. Raises :class:`RequestRefused` without room.

        Results of batches are always added: there was room for them when the batch was created.
        """
        async with store_errors():
            now = await store_time(self._redis)
            ttl = max(1, int((record.expires - now) * 1000))
            share = 1 if record.purpose == "batch" else 2**20
            await self._call(record.id, record.owner, _encode(record), record.size, ttl=ttl, now=now, share=share)

    async def _call(
        self,
        file_id: str,
        owner: str,
        record: bytes,
        size: int,
        *,
        ttl: int,
        now: float,
        share: int,
        param: str | None = "file",
    ) -> None:
        """Run the script with ``share`` times the limits. ``param`` names the file in a refusal."""
        limit, max_bytes = share * self._limit, share * self._max_bytes
        added = await self._add(
            [keys.file(file_id), keys.file_index(owner), keys.file_sizes(owner)],
            [file_id, record, ttl, f"{now:.6f}", limit, keys.file(""), size, max_bytes],
        )
        remedy = "Delete some of them, or let them expire earlier."
        if added == 0:
            message = f"There are {limit} files already, the maximum. {remedy}"
            raise refuse(ProblemKind.INVALID, message, param=param, code="file_limit_exceeded")
        if added < 0:
            message = f"Your files may have at most {max_bytes} bytes together. {remedy}"
            raise refuse(ProblemKind.INVALID, message, param=param, code="file_storage_limit_exceeded")

    async def get(self, owner: str, file_id: str) -> FileRecord | None:
        if not is_file_id(file_id):
            return None
        async with store_errors():
            found = decode_record(_decoder, keys.file(file_id), await self._redis.get(keys.file(file_id)))
        return found if found is not None and found.owner == owner else None

    async def open(self, record: FileRecord) -> BinaryIO:
        """Open the content of a file, to read it from its start. Raises :class:`FileNotFoundError`."""
        storage = await self.storage()
        return await opened(lambda: storage.open(record.id))

    async def open_local(self, record: FileRecord) -> BinaryIO:
        """Open the content of a file, to read it in any order. Raises :class:`FileNotFoundError`."""
        storage = await self.storage()
        return await opened(lambda: storage.open_local(record.id))

    async def delete(self, owner: str, file_id: str) -> bool:
        record = await self.get(owner, file_id)
        if record is None:
            return False
        storage = await self.storage()
        async with store_errors():
            await self._redis.zrem(keys.file_index(owner), file_id)
            await cast("Awaitable[int]", self._redis.hdel(keys.file_sizes(owner), file_id))
            existed = bool(await self._redis.delete(keys.file(file_id)))
        await in_storage(lambda: storage.remove(file_id))
        return existed

    async def keep(self, record: FileRecord, until: float) -> None:
        """Keep the content of a file at least until the time ``until`` (Unix seconds), for a batch that reads it."""
        async with store_errors():
            left = int(1000 * (until - await store_time(self._redis)))
            await self._redis.pexpire(keys.file(record.id), left, gt=True)

    async def needed(self, names: list[str]) -> list[bool]:
        """Return for each name in the storage whether there is a record of the file, or of the batch to whose results
        it belongs."""
        async with store_errors(), self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.exists(keys.batch(name.partition(".")[0]) if name.startswith("batch_") else keys.file(name))
            return [bool(found) for found in await pipe.execute()]

    async def select(
        self,
        owner: str,
        *,
        after: str | None = None,
        limit: int = 10_000,
        newest_first: bool = True,
        purpose: str | None = None,
    ) -> tuple[list[FileRecord], bool]:
        """Return up to ``limit`` files of ``owner`` after the one with the id ``after``, ordered by age, and whether
        there are more."""
        index = keys.file_index(owner)
        async with store_errors():
            page, more = await read_page(
                self._redis,
                index,
                lambda names: self._readable(names, purpose),
                after=after,
                limit=limit,
                scan=_PAGE,
                newest_first=newest_first,
            )
            if more:
                await keep_place(self._redis, index, page[-1].id)
        return page, more

    async def _readable(self, names: list[str], purpose: str | None) -> list[FileRecord]:
        values = await self._redis.mget([keys.file(name) for name in names]) if names else []
        records = (decode_record(_decoder, keys.file(name), value) for name, value in zip(names, values, strict=True))
        return [record for record in records if record is not None and purpose in (None, record.purpose)]


class FileCleanup:
    """Deletes contents without a record. All replicas do, at different times."""

    def __init__(self, files: FileStore, *, min_age: float = _MIN_AGE) -> None:
        self._files = files
        self._min_age = min_age

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL * random.uniform(0.5, 1.5))  # noqa: S311
            try:
                await self.sweep()
            except (RequestRefused, OSError) as error:
                logger.warning("files not cleaned up: %s", error)

    async def sweep(self) -> int:
        """Delete contents without a record; return how many."""
        storage = await self._files.storage()
        limit = time.time() - self._min_age
        old = await asyncio.to_thread(lambda: [entry.name for entry in storage.names() if entry.modified < limit])
        deleted = 0
        for start in range(0, len(old), _SWEPT_AT_A_TIME):
            names = old[start : start + _SWEPT_AT_A_TIME]
            needed = await self._files.needed(names)
            for name, keep in zip(names, needed, strict=True):
                if not keep:
                    await asyncio.to_thread(storage.remove, name)
                    deleted += 1
        if deleted:
            logger.info("%d expired or unfinished files deleted", deleted)
        return deleted
