"""Creation of an IR folder with int8 weights from an existing one."""

import shutil
from pathlib import Path

import openvino

from worker.model.files import write_properties
from worker.weights.compression import compress
from worker.weights.original import MODEL_FILES


def remake(original: Path, scratch: Path) -> Path:
    """Return a new IR folder in ``scratch`` that equals ``original`` except for its weights and properties.

    Raises :class:`~worker.model.local.ModelError` if the weights can't be compressed, and :class:`OSError` if files
    can't be written.
    """
    result = scratch / "result"
    result.mkdir()
    for file in original.iterdir():
        if file.name not in MODEL_FILES and file.suffix != ".gguf":
            shutil.copyfile(file, result / file.name)
    model, properties = compress(openvino.Core().read_model(original / MODEL_FILES[0]))
    openvino.save_model(model, result / MODEL_FILES[0], compress_to_fp16=False)
    write_properties(result, properties)
    return result
