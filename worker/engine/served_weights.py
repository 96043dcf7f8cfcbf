"""Chooses the weights that the engine loads: those of the model's file, or int8 weights from the weight cache."""

import logging
from collections.abc import Callable
from pathlib import Path

from worker.engine.options import EngineOptions
from worker.model.devices import device_kind
from worker.model.files import SMALL_MODEL, model_bytes
from worker.model.local import ModelError
from worker.weights.cache import int8_folder
from worker.weights.compression import DamagedModel

logger = logging.getLogger(__name__)


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
            f"The weights of {path}, an OpenVINO IR folder, are served as they are. Export one with other "
            "weights: optimum-cli export openvino --model ID --weight-format int8 FOLDER"
        )
    try:
        return int8_folder(path, options.context_length, progress)
    except DamagedModel:
        raise
    except (ModelError, OSError, RuntimeError) as error:
        if options.weights == "int8":
            raise
        logger.warning("%s is served with its own weights, which is slower: int8 can't be made. %s", path, error)
        return path


def _suits(path: Path, options: EngineOptions) -> bool:
    """Whether int8 rows are known to be faster and allowed: small models on CPUs with ``fast`` precision.

    Larger models are bound by memory bandwidth, and int8 weights are twice the size of 4-bit ones.
    """
    on_cpu = device_kind(options.device) == "CPU"
    return on_cpu and options.precision == "fast" and path.is_file() and model_bytes(path) <= SMALL_MODEL
