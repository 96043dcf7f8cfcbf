"""The folder of a service's files: a subfolder of ``--files-dir`` whose name is in the store.

So services with different stores can share a directory or a bucket, and a replica whose directory differs from that of
the others is detected.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from api.files.storage import DirectoryRoot, FilesDirError, Storage, StorageRoot
from api.records.errors import store_errors, store_unavailable
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.redis import keys

logger = logging.getLogger(__name__)

_Value = TypeVar("_Value")

_RETRY = 5.0
"""``Retry-After`` in seconds while files can't be read or written."""


MIN_FREE_DISK = 2**30
"""Bytes of the disk that uploads leave free."""


def storage_root(files_dir: str, min_free: int = 0) -> StorageRoot:
    """Return what ``--files-dir`` names, where uploads leave ``min_free`` bytes. Raises :class:`FilesDirError`."""
    if not files_dir.startswith("s3:"):
        return DirectoryRoot(files_dir, min_free)
    try:
        from api.files.s3 import S3Root
    except ModuleNotFoundError:
        raise FilesDirError(
            f"--files-dir is {files_dir}, but the package obstore is not installed. Install Vinoqueue's extra 's3'."
        ) from None
    return S3Root(files_dir, min_free)


class FilesFolder:
    """Finds or creates the folder."""

    def __init__(self, redis: Redis, root: StorageRoot) -> None:
        """``root`` is what ``--files-dir`` names."""
        self._redis = redis
        self._root = root
        self._name = ""

    async def check(self) -> None:
        """Check what ``--files-dir`` names before the replica serves. Raises :class:`FilesDirError` if it can never be
        used; a storage that can't be reached may be back later."""
        try:
            await asyncio.to_thread(self._root.check)
        except OSError as error:
            logger.warning("files can't be served yet: %s", error)

    async def storage(self) -> Storage:
        """Return the storage of this service's files.

        Raises :class:`RequestRefused` when the store is unreachable or the folder can't be used.
        """
        async with store_errors():
            name = await self._redis.get(keys.FILES_FOLDER)
        try:
            folder = await self._register() if name is None else uuid.UUID(name.decode()).hex
            storage = await asyncio.to_thread(self._root.storage, folder)
        except RedisError as error:
            raise store_unavailable(error) from error
        except FileNotFoundError as error:
            raise _unusable(f"{error}: --files-dir must be the same for all API replicas") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise _unusable(error) from error
        self._name = folder
        return storage

    async def _register(self) -> str:
        """Create the folder and put its name into the store; return the name that is there, if another was faster.

        The store may have lost the name of a folder that is in use.
        """
        name = self._name or uuid.uuid4().hex
        await asyncio.to_thread(self._root.create, name)
        if await self._redis.set(keys.FILES_FOLDER, name, nx=True):
            return name
        if name != self._name:
            await asyncio.to_thread(self._root.remove, name)
        winner: bytes = await self._redis.get(keys.FILES_FOLDER)
        return uuid.UUID(winner.decode()).hex


async def in_storage(work: Callable[[], _Value]) -> _Value:
    """Run an operation of a storage in a thread.

    Raises :class:`FileNotFoundError`, and :class:`RequestRefused` when the storage fails.
    """
    try:
        return await asyncio.to_thread(work)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unusable(error) from error


async def opened(work: Callable[[], BinaryIO]) -> BinaryIO:
    """Open a file of a storage in a thread, which can't be interrupted: if this is cancelled, the file is closed as
    soon as it is open. Raises as :func:`in_storage` does."""
    opening = asyncio.create_task(in_storage(work))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise


def _close(opening: "asyncio.Task[BinaryIO]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _unusable(why: object) -> RequestRefused:
    logger.error("files can't be served: %s", why)
    return refuse(
        ProblemKind.STORE_UNAVAILABLE,
        "This service can't read or write its files. Its operator finds the reason in the log of this API replica.",
        retry_after=_RETRY,
    )
