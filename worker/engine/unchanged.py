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
        self._vocabulary = ""
        self.difference = ""
        self.changed = asyncio.Event()
        """Set once a difference was found."""

    def check(self, vocabulary: str = "") -> None:
        """Compare the model that a subprocess has just loaded, with this digest of its vocabulary if it is known.

        The files must be compared after the load: they can't have changed and become the same again, because of the
        time of the last status change. Raises :class:`ModelChanged`.
        """
        now = self._states()
        names = sorted(name for name in {*self._before, *now} if self._before.get(name) != now.get(name))
        self._vocabulary = self._vocabulary or vocabulary
        if not names and vocabulary in ("", self._vocabulary):
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
