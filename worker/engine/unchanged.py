"""Whether a model is still the one that a worker has begun to serve.

Each subprocess that is replaced opens the model again. With files of another model, tokens would mean something else in
one process than in the others.
"""

import asyncio
from pathlib import Path

from worker.model.identity import model_files
from worker.processes.child import LoadError


class ModelChanged(LoadError):
    """The model is another one than at the start of the worker. The message says what has changed."""


class UnchangedModel:
    """Compares a model with what it was when this was made."""

    def __init__(self, *paths: str) -> None:
        """``paths`` are those of the model, and of others that are loaded with it."""
        self._paths = [Path(path) for path in paths if path]
        self._before = self._states()
        self._loaded = ("", "")
        self.difference = ""
        self.changed = asyncio.Event()
        """Set once a difference was found."""

    def check(self, vocabulary: str = "", fingerprint: str = "") -> None:
        """Compare the model that a subprocess has just loaded, with these digests if they are known.

        The files must be compared after the load: they can't have changed and become the same again, because of the
        time of the last status change. That time also changes without the content (a hard link, ``chmod``): files that
        an engine has loaded with the same fingerprint, which covers their contents, are the same files.
        Raises :class:`ModelChanged`.
        """
        now = self._states()
        names = sorted(name for name in {*self._before, *now} if self._before.get(name) != now.get(name))
        digests = vocabulary or self._loaded[0], fingerprint or self._loaded[1]
        if fingerprint and digests == self._loaded:
            self._before, names = now, []
        same = self._loaded[0] in ("", digests[0])
        self._loaded = self._loaded[0] or digests[0], self._loaded[1] or digests[1]
        if not names and same:
            return
        self.difference = ", ".join(names) or "its vocabulary"
        self.changed.set()
        raise ModelChanged(f"the model has changed since this worker began to serve it: {self.difference}")

    def _states(self) -> dict[str, tuple[int, int, int]]:
        return {str(file): _state(file) for path in self._paths for file in model_files(path)}


def _state(file: Path) -> tuple[int, int, int]:
    """Return what changes with a file. Not its inode, which is not stable on every network file system."""
    try:
        stat = file.stat()
    except OSError:
        return (-1, 0, 0)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
