"""The folder of a service's files: a subfolder of ``--files-dir`` whose name is in the store.

So services with different stores can share a directory, and a replica whose directory is not the one that the others
use is noticed.
"""

import asyncio
import logging
import uuid
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from api.files.storage import DirectoryStorage, Storage, default_folder
from shared.protocol.errors import ProblemKind, RequestRefused, refuse, store_unavailable
from shared.redis import keys

logger = logging.getLogger(__name__)


class FilesFolder:
    """Finds or creates the folder."""

    def __init__(self, redis: Redis, root: str) -> None:
        """``root`` is ``--files-dir``; if it is empty, the user's data folder is used."""
        self._redis = redis
        self._root = root
        self._name = ""

    async def storage(self) -> Storage:
        """Return the storage of this service's files.

        Raises :class:`RequestRefused` when the store is unreachable or the folder can't be used.
        """
        try:
            name = await self._redis.get(keys.FILES_FOLDER)
        except (RedisError, OSError) as error:
            raise store_unavailable() from error
        try:
            root = Path(self._root) if self._root else default_folder()
            if name is None:
                folder = root / await self._register(root)
            else:
                folder = root / uuid.UUID(name.decode()).hex
                if not await asyncio.to_thread(folder.is_dir):
                    raise FileNotFoundError(
                        f"{folder} is missing: --files-dir must be the same directory for all API replicas"
                    )
        except RedisError as error:
            raise store_unavailable() from error
        except (OSError, RuntimeError, ValueError) as error:
            logger.error("files can't be served: %s", error)
            raise _unusable() from error
        self._name = folder.name
        return DirectoryStorage(folder)

    async def _register(self, root: Path) -> str:
        """Create the folder and put its name into the store; return the name that is there, if another was faster.

        The store may have lost the name of a folder that is in use.
        """
        name = self._name or uuid.uuid4().hex
        folder = root / name
        await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        if await self._redis.set(keys.FILES_FOLDER, name, nx=True):
            return name
        if name != self._name:
            await asyncio.to_thread(folder.rmdir)
        winner: bytes = await self._redis.get(keys.FILES_FOLDER)
        return uuid.UUID(winner.decode()).hex


def _unusable() -> RequestRefused:
    return refuse(
        ProblemKind.STORE_UNAVAILABLE,
        "The files of this service can't be reached. Its operator finds the reason in the log of this API replica.",
    )
