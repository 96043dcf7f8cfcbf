"""Cleanup: deletes contents of files that have expired, and what unfinished uploads and batches have left."""

import asyncio
import logging
import random
import time

from api.files.store import FileStore
from shared.protocol.errors import RequestRefused

logger = logging.getLogger(__name__)

_INTERVAL = 600.0
"""Mean number of seconds between two passes."""

_MIN_AGE = 3600.0
"""Seconds without a write after which a file without a record is deleted. Uploads take less, and a record is added
right after its content."""

_AT_A_TIME = 256


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
        for start in range(0, len(old), _AT_A_TIME):
            names = old[start : start + _AT_A_TIME]
            needed = await self._files.needed(names)
            for name, keep in zip(names, needed, strict=True):
                if not keep:
                    await asyncio.to_thread(storage.remove, name)
                    deleted += 1
        if deleted:
            logger.info("%d expired or unfinished files deleted", deleted)
        return deleted
