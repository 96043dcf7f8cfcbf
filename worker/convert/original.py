"""The model to convert, as an OpenVINO IR folder of our own that may be changed.

OpenVINO GenAI builds an IR of a GGUF file when it loads one, and can save it beside the file. So the file gets a
place in a scratch folder first: the source's folder may be one that nobody may write to.
"""

import json
import os
import shutil
from pathlib import Path

import msgspec
import openvino_genai

from worker.models import LocalModel, ModelError

MODEL_FILES = ("openvino_model.xml", "openvino_model.bin")
"""What a conversion makes anew; everything else in an IR folder is copied."""

_SAVE = {"enable_save_ov_model": True}


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a scratch folder. ``folder`` is its IR, ``served`` what a worker would load: that, or a GGUF file."""

    folder: Path
    served: Path


def bring(model: LocalModel, scratch: Path) -> Original:
    """Put ``model`` into ``scratch`` as it is: weights, tokenizer, chat template, context length.

    Raises :class:`ModelError` when OpenVINO can't read the model, and :class:`OSError` when the disk is full.
    """
    folder = scratch / "original"
    folder.mkdir()
    if model.kind == "gguf":
        return Original(folder=folder, served=_save(model, folder))
    for file in model.path.iterdir():
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    return Original(folder=folder, served=folder)


def _save(model: LocalModel, folder: Path) -> Path:
    """Make the IR of a GGUF file in ``folder``; return the place that the file itself has in it."""
    file = folder / "model.gguf"
    # GenAI opens GGUF files for writing, though it writes nothing; a file that it may not write to is copied.
    if os.access(model.path, os.W_OK):
        file.symlink_to(model.path.absolute())
    else:
        shutil.copyfile(model.path, file)
    try:
        openvino_genai.Tokenizer(str(file), **_SAVE)
        openvino_genai.ContinuousBatchingPipeline(str(file), openvino_genai.SchedulerConfig(), "CPU", _SAVE)
    except Exception as error:
        raise ModelError(f"OpenVINO GenAI can't load {model.path}: {error}") from error
    missing = [name for name in MODEL_FILES if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"OpenVINO GenAI {openvino_genai.__version__} loads {model.path}, but saves no {' and no '.join(missing)} "
            "of it. Export the model that it was made from: optimum-cli export openvino --model ID FOLDER"
        )
    # All else that a worker asks a folder for (chat template, special tokens) is in the saved tokenizer.
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": model.context_length}, indent=2) + "\n")
    if defaults := msgspec.to_builtins(model.sampling):
        stated = {"do_sample": True, **defaults}
        (folder / "generation_config.json").write_text(json.dumps(stated, indent=2) + "\n")
    return file
