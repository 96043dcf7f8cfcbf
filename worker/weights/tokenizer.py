"""The tokenizer of a GGUF file as an OpenVINO IR in the weight cache.

For its tokenizer, OpenVINO GenAI reads all weights of a GGUF file: 4 seconds of CPU time for the default model, against
0.3 for the IR. Each process of a worker opens a tokenizer.
"""

import hashlib
from pathlib import Path

import openvino
import openvino_genai

from worker.model.files import SMALL_MODEL, model_bytes
from worker.model.identity import model_identity
from worker.weights.cache import cached_folder
from worker.weights.original import SAVE, link


def tokenizer_path(path: Path) -> Path:
    """Return the path to open the tokenizer of the model at ``path`` from: a cached IR folder, made if necessary.

    It is ``path`` itself for an IR folder, for a GGUF file that is not small, and if the IR can't be made.
    """
    try:
        if path.is_dir() or model_bytes(path) > SMALL_MODEL:
            return path
        return _folder(path)
    except (OSError, RuntimeError):
        # Opening the tokenizer of the file itself works without a cache, or shows what is wrong with the file.
        return path


def _folder(path: Path) -> Path:
    """Return the cached IR folder of the tokenizer of a GGUF file, making it if necessary."""
    identity = model_identity(path)
    parts = (identity, openvino.__version__, openvino_genai.__version__)
    name = f"{path.stem[:64]}-tokenizer-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"

    def make(scratch: Path) -> Path:
        made = scratch / "made"
        made.mkdir()
        file = link(path, made)
        openvino_genai.Tokenizer(str(file), **SAVE)
        file.unlink()
        if model_identity(path) != identity:
            raise OSError(f"{path} was changed while it was read.")
        return made

    return cached_folder(name, make)
