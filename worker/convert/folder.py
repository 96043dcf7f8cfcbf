"""An IR folder with other weights than the one that it is made from."""

import shutil
from pathlib import Path

import openvino

from worker.convert.original import MODEL_FILES
from worker.convert.weights import Weights, compress
from worker.engine.model_files import state_properties


def remake(original: Path, weights: Weights, scratch: Path) -> Path:
    """Return a new IR folder in ``scratch``, like ``original`` but for its weights.

    Raises :class:`~worker.models.ModelError` when the weights can't be made, :class:`OSError` when the disk is full.
    """
    result = scratch / "result"
    result.mkdir()
    for file in original.iterdir():
        if file.name not in MODEL_FILES and file.suffix != ".gguf":
            shutil.copyfile(file, result / file.name)
    model, properties = compress(openvino.Core().read_model(original / MODEL_FILES[0]), weights)
    openvino.save_model(model, result / MODEL_FILES[0], compress_to_fp16=weights.format == "f16")
    state_properties(result, properties)
    return result
