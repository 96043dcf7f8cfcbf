"""The weight cache: int8 weights of small GGUF models, converted at the first start and stored in the user's cache.

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

from worker.convert.folder import remake
from worker.convert.original import bring
from worker.convert.weights import DamagedModel, Weights
from worker.engine.devices import device_kind
from worker.engine.identity import model_identity
from worker.engine.model_files import model_bytes
from worker.engine.options import EngineOptions
from worker.models import LocalModel, ModelError
from worker.user_cache import user_cache

logger = logging.getLogger(__name__)

_SMALL = 256_000_000
"""Maximum size in bytes of a GGUF file that is converted by default. Larger models are bound by memory bandwidth, and
int8 weights are twice the size of 4-bit ones."""

_UNUSED = 90 * 86_400
"""Seconds after the last load when a cache entry is removed: those of older OpenVINO versions or of deleted files."""

_VERSION = "3"
"""Format version of cache entries. Change it when conversions produce other weights or properties."""


def serving_path(options: EngineOptions, progress: Callable[[str], None]) -> Path:
    """Return the path to load for the model at ``options.path``: that path, or a cached IR folder with int8 weights.

    Raises :class:`ModelError`, :class:`OSError` and :class:`RuntimeError` (from OpenVINO) if ``options.weights`` is
    int8 and the conversion fails. If it is auto, a failure is logged and the original path returned. In both cases,
    raises :class:`DamagedModel` if the file has tensors that are not finite.
    """
    path = Path(options.path)
    if options.weights == "original" or (options.weights == "auto" and not _suits(path, options)):
        return path
    if path.is_dir():
        raise ModelError(
            f"The weights of {path}, an OpenVINO IR folder, are served as they are. Make a folder with other weights: "
            f"vinoqueue model convert {path} FOLDER --weights int8"
        )
    try:
        return _kept(path, options.context_length, progress)
    except DamagedModel:
        raise
    except (ModelError, OSError, RuntimeError) as error:
        if options.weights == "int8":
            raise
        logger.warning("%s is served with its own weights, which is slower: int8 can't be made. %s", path, error)
        return path


def cache_folder() -> Path:
    """Return the directory of the weight cache."""
    return user_cache() / "models"


def _suits(path: Path, options: EngineOptions) -> bool:
    """Whether int8 rows are known to be faster and allowed: small models on CPUs with ``fast`` precision."""
    on_cpu = device_kind(options.device) == "CPU"
    return on_cpu and options.precision == "fast" and path.is_file() and model_bytes(path) <= _SMALL


def _kept(path: Path, context_length: int, progress: Callable[[str], None]) -> Path:
    identity = model_identity(path)
    parts = (identity, openvino.__version__, openvino_genai.__version__, str(context_length), _VERSION)
    name = f"{path.stem}-int8-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"
    folder = cache_folder() / name
    if folder.is_dir():
        with suppress(OSError):  # the cache may be read-only
            os.utime(folder)
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    progress(f"making int8 weights of {path.name}, once")
    # If several workers start at once, one converts and the others wait.
    with FileLock(folder.with_name(f"{name}.lock")):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
                model = LocalModel(name=path.stem, path=path, kind="gguf", context_length=context_length)
                original = bring(model, Path(scratch))
                made = remake(original.folder, Weights(format="int8"), Path(scratch))
                if model_identity(path) != identity:
                    raise ModelError(f"{path} was changed while it was converted.")
                made.rename(folder)
            _tidy(folder.parent)
    return folder


def _tidy(cache: Path) -> None:
    """Remove entries that have not been loaded for :data:`_UNUSED` seconds. Each load updates an entry's mtime."""
    for folder in cache.glob("*-int8-*"):
        if folder.is_dir() and time.time() - folder.stat().st_mtime > _UNUSED:
            logger.info("removing unused cache entry %s", folder)
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)
