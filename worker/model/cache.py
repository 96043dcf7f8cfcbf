"""The user's cache folder, with the weight cache: forms of small GGUF models that are made at the first start.

A worker loads the cached IR folder instead of the GGUF file. With int8 rows the default model generates 1.2 to 1.9
times as many tokens per second, and loads in less than half the time (docs/decisions/0009).
"""

import errno
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

_UNUSED = 90 * 86_400
"""Seconds after the last load when a cache entry is removed: those of older OpenVINO versions or of deleted files."""

_KINDS = ("int8", "logits", "original", "tokenizer")
"""Kinds of entries; part of their names."""


def user_cache() -> Path:
    """Return vinoqueue's cache folder (XDG Base Directory Specification). It may not exist yet.

    Raises :class:`RuntimeError` when the user has no home directory.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vinoqueue"


def cache_folder() -> Path:
    """Return the directory of the weight cache."""
    return user_cache() / "models"


def write_whole(file: Path, content: bytes) -> None:
    """Write a small file at once: readers see the old content or the new one. Does nothing if it can't be written."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as scratch:
            scratch.write(content)
        os.replace(scratch.name, file)


def cached_folder(name: str, make: Callable[[Path], Path], on_wait: Callable[[], None] = lambda: None) -> Path:
    """Return the entry ``name`` of the weight cache.

    If there is none, ``make`` makes it in a scratch directory, which it gets, and returns its path there. ``on_wait``
    is called if another process makes it. Raises :class:`OSError` if the cache can't be written, and what ``make``
    raises.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        with suppress(OSError):  # the cache may be read-only
            os.utime(folder)
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    from filelock import FileLock, Timeout  # few processes make an entry

    # If several workers start at once, one makes it and the others wait.
    lock = FileLock(folder.with_name(f"{name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        on_wait()
        lock.acquire()
    try:
        if not folder.is_dir():
            for left in folder.parent.glob(f".{name}-*"):
                # Of a worker that was killed while it made the entry.
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
                try:
                    make(Path(scratch)).rename(folder)
                except RuntimeError as error:
                    if "iostream error" in str(error):  # all that OpenVINO says when it cannot write
                        full = f"{os.strerror(errno.ENOSPC)}, or the disk fails"
                        raise OSError(errno.ENOSPC, full, str(folder.parent)) from error
                    raise
            _tidy(folder.parent)
    finally:
        lock.release()
    return folder


def _tidy(cache: Path) -> None:
    """Remove entries that have not been loaded for :data:`_UNUSED` seconds. Each load updates an entry's mtime."""
    for folder in (folder for kind in _KINDS for folder in cache.glob(f"*-{kind}-*")):
        if folder.is_dir() and time.time() - folder.stat().st_mtime > _UNUSED:
            logger.info("removing unused cache entry %s", folder)
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)
