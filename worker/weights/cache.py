"""The weight cache: forms of small GGUF models that are made at the first start and stored in the user's cache.

A worker loads the cached IR folder instead of the GGUF file. With int8 rows the default model generates 1.2 to 1.9
times as many tokens per second, and loads in less than half the time (docs/decisions/0009).
"""

import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import openvino
import openvino_genai
from filelock import FileLock

from worker.model.identity import model_identity
from worker.model.local import LocalModel, ModelError
from worker.model.user_cache import user_cache
from worker.weights.folder import remake
from worker.weights.original import copy_original

logger = logging.getLogger(__name__)

_UNUSED = 90 * 86_400
"""Seconds after the last load when a cache entry is removed: those of older OpenVINO versions or of deleted files."""

_KINDS = ("int8", "logits", "tokenizer")
"""Kinds of entries; part of their names."""

_VERSION = "3"
"""Format version of cache entries. Change it when conversions produce other weights or properties."""


def cache_folder() -> Path:
    """Return the directory of the weight cache."""
    return user_cache() / "models"


def cached_folder(name: str, make: Callable[[Path], Path]) -> Path:
    """Return the entry ``name`` of the weight cache.

    If there is none, ``make`` makes it in a scratch directory, which it gets, and returns its path there. Raises
    :class:`OSError` if the cache can't be written, and what ``make`` raises.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        with suppress(OSError):  # the cache may be read-only
            os.utime(folder)
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # If several workers start at once, one makes it and the others wait.
    with FileLock(folder.with_name(f"{name}.lock")):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
                make(Path(scratch)).rename(folder)
            _tidy(folder.parent)
    return folder


def int8_folder(path: Path, context_length: int, progress: Callable[[str], None]) -> Path:
    """Return the cached IR folder with int8 weights of the GGUF file at ``path``, converting it if necessary.

    ``context_length`` is stated in the folder's configuration. Raises :class:`DamagedModel` if the file has tensors
    that are not finite, and :class:`ModelError`, :class:`OSError` or :class:`RuntimeError` (from OpenVINO) if the
    conversion fails.
    """
    identity = model_identity(path)
    parts = (identity, openvino.__version__, openvino_genai.__version__, str(context_length), _VERSION)
    name = f"{path.stem}-int8-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"

    def make(scratch: Path) -> Path:
        model = LocalModel(name=path.stem, path=path, kind="gguf", context_length=context_length)
        original = copy_original(model, scratch)
        made = remake(original.folder, scratch)
        if model_identity(path) != identity:
            raise ModelError(f"{path} was changed while it was converted.")
        return made

    if not (cache_folder() / name).is_dir():
        progress(f"making int8 weights of {path.name}, once")
    return cached_folder(name, make)


def _tidy(cache: Path) -> None:
    """Remove entries that have not been loaded for :data:`_UNUSED` seconds. Each load updates an entry's mtime."""
    for folder in (folder for kind in _KINDS for folder in cache.glob(f"*-{kind}-*")):
        if folder.is_dir() and time.time() - folder.stat().st_mtime > _UNUSED:
            logger.info("removing unused cache entry %s", folder)
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)
