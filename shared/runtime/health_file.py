"""The health file: the status of a process, for probes of containers that start no Python to read it."""

import logging
from pathlib import Path

logger = logging.getLogger(__name__)


class HealthFile:
    """A file whose only line is the status, and whose modification time is that of the last heartbeat."""

    def __init__(self, path: str = "") -> None:
        """``path`` is the file; empty writes none."""
        self._path = Path(path) if path else None

    def write(self, status: str) -> None:
        """Replace the file. If it can't be written, this is logged once, and probes fail as it grows old."""
        if self._path is None:
            return
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.write_text(f"{status}\n", encoding="utf-8")
            new.replace(self._path)
        except OSError as error:
            logger.error("the health file can't be written: %s", error)
            self._path = None
