"""Exports a GGUF file, or its tokenizer alone, to an OpenVINO IR folder.

OpenVINO GenAI builds an IR when it loads a GGUF file, and can save it to the file's folder. The source's folder may be
read-only, so the file is linked to in a scratch directory first.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import openvino
import openvino_genai

from worker.model.cache import cached_folder
from worker.model.identity import model_identity
from worker.model.source import ModelError
from worker.model.split import parts, whole_name

MODEL_FILES = ("openvino_model.xml", "openvino_model.bin")
"""The files of a text model that a conversion replaces."""

SAVE = {"enable_save_ov_model": True}
"""Properties that have GenAI save the IR of a GGUF file to the file's folder."""


def export_gguf(path: Path, context_length: int, scratch: Path) -> Path:
    """Return an IR folder in ``scratch`` with the weights, tokenizer and chat template of the GGUF file at ``path``.

    ``context_length`` is stated in the folder's configuration. Raises :class:`ModelError` if OpenVINO can't read the
    model, and :class:`OSError` if files can't be written.
    """
    folder = scratch / "original"
    folder.mkdir()
    file = link(path, folder)
    try:
        tokenizer = openvino_genai.Tokenizer(str(file), **SAVE)
        openvino_genai.ContinuousBatchingPipeline(str(file), tokenizer, openvino_genai.SchedulerConfig(), "CPU", **SAVE)
    except Exception as error:
        raise ModelError(f"OpenVINO GenAI can't load {path}: {error}") from error
    missing = [name for name in MODEL_FILES if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"OpenVINO GenAI {openvino_genai.__version__} loads {path}, but saves no {' and no '.join(missing)} "
            "of it. Export the model that it was made from: optimum-cli export openvino --model ID FOLDER"
        )
    # The chat template and the special tokens are part of the saved tokenizer.
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": context_length}, indent=2) + "\n")
    return folder


def link(path: Path, folder: Path) -> Path:
    """Return a link in ``folder``, where GenAI can save an IR, to the GGUF file at ``path``. It must be writable.

    The parts of a split file get links with their names, by which GenAI finds them.
    """
    files = parts(path)
    for file in files:
        (folder / file.name).symlink_to(file.absolute())
    return folder / files[0].name


def tokenizer_path(path: Path) -> Path:
    """Return the path to open the tokenizer of the model at ``path`` from: a cached IR folder, made if necessary.

    For its tokenizer, OpenVINO GenAI reads all weights of a GGUF file: 4 seconds of CPU time for the default model,
    against 0.3 for the IR. Each process of a worker opens a tokenizer.

    It is ``path`` itself for an IR folder, and if the IR can't be made.
    """
    try:
        return path if path.is_dir() else _folder(path)
    except (OSError, RuntimeError):
        # Opening the tokenizer of the file itself works without a cache, or shows what is wrong with the file.
        return path


def _folder(path: Path) -> Path:
    """Return the cached IR folder of the tokenizer of a GGUF file, making it if necessary."""

    def make(scratch: Path) -> Path:
        made = scratch / "made"
        made.mkdir()
        file = link(path, made)
        openvino_genai.Tokenizer(str(file), **SAVE)
        for linked in parts(file):
            linked.unlink()
        return made

    return cached_form("tokenizer", path, (), make)


def cached_form(
    kind: str,
    path: Path,
    depends_on: Iterable[str],
    make: Callable[[Path], Path],
    on_wait: Callable[[], None] = lambda: None,
) -> Path:
    """Return the cached IR folder with the form ``kind`` of the model at ``path``.

    If there is none, it is made as in :func:`~worker.model.cache.cached_folder`. It depends on the model's content,
    OpenVINO's version, and ``depends_on``. Raises :class:`OSError` if the cache can't be written, or the model is
    changed meanwhile, and what ``make`` raises.
    """
    identity = model_identity(path)
    key = chr(10).join((identity, openvino.__version__, openvino_genai.__version__, *depends_on))
    model = Path(whole_name(path.name)).stem
    name = f"{model[:64]}-{kind}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"

    def make_whole(scratch: Path) -> Path:
        made = make(scratch)
        if model_identity(path) != identity:
            raise OSError(f"{path} was changed while it was read.")
        return made

    return cached_folder(name, make_whole, on_wait)
