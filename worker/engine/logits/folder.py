"""Makes the IR folder of a model with a logits tap, in the weight cache."""

import filecmp
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import openvino
import openvino_genai

from worker.engine.logits.graph import add_tap
from worker.model.identity import model_identity
from worker.model.local import LocalModel
from worker.weights.cache import cached_folder
from worker.weights.original import MODEL_FILES, copy_original

_VERSION = "3"
"""Change it when the tap is put into graphs in another way."""


def tapped_folder(path: Path, context_length: int) -> Path:
    """Return the cached IR folder of the model at ``path`` with a logits tap, making it if necessary.

    The weights of an IR folder are linked. Those of a GGUF file are saved as they are; ``context_length`` is stated in
    the folder's configuration. Raises :class:`~worker.engine.logits.graph.NoTap` if the model has no place for a tap,
    and :class:`ModelError`, :class:`OSError` or :class:`RuntimeError` (from OpenVINO) if the folder can't be made.
    """
    versions = (openvino.__version__, openvino_genai.__version__, _VERSION)
    parts = (model_identity(path), str(path.resolve()), str(context_length), *versions)
    name = f"{path.stem[:64]}-logits-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"

    def make(scratch: Path) -> Path:
        made = scratch / "made"
        made.mkdir()
        if path.is_dir():
            _make(path, made, _link)
        else:
            model = LocalModel(name=path.stem, path=path, kind="gguf", context_length=context_length)
            _make(copy_original(model, scratch).folder, made, shutil.move)
        return made

    return cached_folder(name, make)


def _make(original: Path, made: Path, transfer: Callable[[Path, Path], object]) -> None:
    """Write the model of the IR folder ``original`` with a tap to ``made``; ``transfer`` its other files."""
    xml, weights = (made / name for name in MODEL_FILES)
    model = openvino.Core().read_model(original / xml.name)
    add_tap(model)
    openvino.save_model(model, xml, compress_to_fp16=False)
    del model  # it maps the original weights
    if filecmp.cmp(original / weights.name, weights, shallow=False):
        weights.unlink()
        transfer(original / weights.name, weights)
    for file in original.iterdir():
        if file.name not in MODEL_FILES and file.suffix != ".gguf":
            transfer(file, made / file.name)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(source.resolve())
