"""Small models with the weights that a CPU computes fastest, made at the first start and kept in the user's cache.

What is made of a GGUF file here stands for it from then on: with int8 rows the default model makes 1.2 to 1.9 times the
tokens, and loads in less than half the time (docs/decisions/0009).
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
"""Bytes of a GGUF file up to which its weights are converted unasked. A large model is bound by the memory that its
weights are read from at each step, of which int8 is twice as much as 4 bits."""

_UNUSED = 90 * 86_400
"""Seconds for which kept weights that nobody loads stay: those of an older OpenVINO, or of a file that has gone."""

_VERSION = "3"
"""To change when other weights, or other properties, are made for the same file."""


def serving_path(options: EngineOptions, progress: Callable[[str], None]) -> Path:
    """Return what to load for the model at ``options.path``: that, or a kept IR folder with int8 weights.

    Raises :class:`ModelError`, :class:`OSError` and :class:`RuntimeError` (OpenVINO's) when int8 weights were asked for
    and can't be made; where they would only have been better, that is logged. Raises :class:`DamagedModel` in either
    case when the file's tensors are not finite.
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
    """Where such weights are kept."""
    return user_cache() / "models"


def _suits(path: Path, options: EngineOptions) -> bool:
    """Whether int8 rows are known to be better: on CPUs, for small models, where rounding is not forbidden."""
    on_cpu = device_kind(options.device) == "CPU"
    return on_cpu and options.precision == "fast" and path.is_file() and model_bytes(path) <= _SMALL


def _kept(path: Path, context_length: int, progress: Callable[[str], None]) -> Path:
    identity = model_identity(path)
    parts = (identity, openvino.__version__, openvino_genai.__version__, str(context_length), _VERSION)
    name = f"{path.stem}-int8-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"
    folder = cache_folder() / name
    if folder.is_dir():
        with suppress(OSError):  # a cache that one may only read is tidied by nobody
            os.utime(folder)
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    progress(f"making int8 weights of {path.name}, once")
    # Of several workers that start at once, one makes it, and the others wait.
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
    """Remove what has not been loaded for :data:`_UNUSED` seconds; loading it renews its time."""
    for folder in cache.glob("*-int8-*"):
        if folder.is_dir() and time.time() - folder.stat().st_mtime > _UNUSED:
            logger.info("%s has not been used for long and is removed", folder)
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)
