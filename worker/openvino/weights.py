"""Chooses the weights that a GGUF file is served with: its own, or int8 weights that are made of them once.

docs/decisions/0009 has the reasons.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from worker.engine.host import free_memory, usable_cpus
from worker.engine.protocol import EngineLoadError
from worker.model.devices import device_kind, has_amx
from worker.model.files import SMALL_MODEL, model_bytes
from worker.model.gguf_model import GGUFModel
from worker.model.source import ModelError
from worker.openvino.export import exported_folder
from worker.openvino.int8 import DamagedModel, int8_folder
from worker.openvino.options import OpenVINOOptions

logger = logging.getLogger(__name__)

_LARGEST = 3_000_000_000
"""Maximum size in bytes of a GGUF file that is converted by default. A conversion takes more than a minute of CPU
time for each GB."""

_MOST_CPUS = 16
"""Maximum number of CPUs. Each reads 20 GB/s of int8 weights, a processor with AMX 300 GB/s in all."""


def served_path(options: OpenVINOOptions, progress: Callable[[str], None]) -> Path:
    """Return the path of the weights to load. Raises :class:`EngineLoadError`."""
    try:
        return serving_path(options, progress)
    except (ModelError, OSError, RuntimeError) as error:
        raise EngineLoadError(f"int8 weights of {options.path} can't be made: {error}") from error


def serving_path(options: OpenVINOOptions, progress: Callable[[str], None]) -> Path:
    """Return the path to load for the model at ``options.path``: that path, or a cached IR folder.

    The folder has int8 weights, or the file's own if OpenVINO GenAI can't serve the file as it is. Raises
    :class:`ModelError`, :class:`OSError` and :class:`RuntimeError` (from OpenVINO) if ``options.weights`` is int8 or
    GenAI can't read the file, and the conversion fails. Otherwise, a failure is logged and the original path returned.
    In both cases, raises :class:`DamagedModel` if the file has tensors that are not finite.
    """
    path = Path(options.path)
    original = GGUFModel(path) if path.is_file() else None
    if options.weights == "original" or (options.weights == "auto" and not _suits(path, options, original)):
        return _with_own_weights(path, options, original)
    if path.is_dir():
        raise ModelError(
            f"The weights of {path}, an OpenVINO IR folder, are served as they are. Export one with other "
            "weights: optimum-cli export openvino --model ID --weight-format int8 FOLDER"
        )
    # An operator who asks for int8 may know better how much memory there is.
    memory = (free_memory() or None) if options.weights == "auto" else None
    try:
        return int8_folder(path, options.context_length, progress, memory=memory)
    except DamagedModel:
        raise
    except (ModelError, OSError, RuntimeError) as error:
        if options.weights == "int8" or (original is not None and not original.is_readable):
            raise
        logger.warning("%s is served with its own weights, which is slower: int8 can't be made. %s", path, error)
        return _with_own_weights(path, options, original)


def _with_own_weights(path: Path, options: OpenVINOOptions, original: GGUFModel | None) -> Path:
    if options.weights == "auto" and original is not None and original.is_readable and not original.is_exact:
        logger.warning(
            "%s has weights in Q4_1 or Q4_K, which OpenVINO GenAI rounds; --weights int8 is more accurate", path
        )
    needs_export = original is not None and original.needs_export
    return exported_folder(path, options.context_length) if needs_export else path


def _suits(path: Path, options: OpenVINOOptions, original: GGUFModel | None) -> bool:
    """Whether int8 weights are known to be faster, and allowed: on CPUs with ``fast`` precision.

    Those of larger files are faster on CPUs with AMX, whose bf16 is slow for few rows, unless memory bandwidth is
    short: they are up to twice the size of a 4-bit file. The alternative for types that GenAI can't read is f16.
    """
    if device_kind(options.device) != "CPU" or options.precision != "fast" or original is None:
        return False
    if not original.is_readable:
        return True
    size = model_bytes(path)
    return size <= SMALL_MODEL or (size <= _LARGEST and has_amx() and usable_cpus() <= _MOST_CPUS)
