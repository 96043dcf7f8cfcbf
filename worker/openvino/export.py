"""Exports a GGUF file to an OpenVINO IR folder.

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
from worker.model.gguf_model import GGUFModel
from worker.model.identity import model_identity
from worker.model.rope import rotate
from worker.model.source import ModelError
from worker.model.split import parts, whole_name
from worker.openvino.detokenizer import DETOKENIZER, detokenizer, open_models

MODEL_FILES = ("openvino_model.xml", "openvino_model.bin")
"""The files of a text model that a conversion replaces."""

SAVE = {"enable_save_ov_model": True}
"""Properties that have GenAI save the IR of a GGUF file to the file's folder."""


def export_gguf(path: Path, context_length: int, scratch: Path, *, exact: bool = False) -> Path:
    """Return an IR folder in ``scratch`` with the weights of the GGUF file at ``path``.

    ``context_length`` is stated in the folder's configuration. With ``exact``, or if GenAI can't read the file, its
    weights are unpacked to f16 here; otherwise they are those that GenAI makes of it. Raises :class:`ModelError` if
    OpenVINO can't read the model, and :class:`OSError` if files can't be written.
    """
    folder = scratch / "original"
    folder.mkdir()
    original = GGUFModel(path)
    file = link(path, folder)
    try:
        if not (original.is_exact if exact else original.is_readable):
            file = folder / "f16.gguf"
            original.write_f16(file)
        # A pipeline needs a tokenizer, but converts the weights without it.
        tokenizer = open_models({DETOKENIZER: detokenizer([b"a"], ())}, {})
        # It has saved the graph when it looks for the device; to compile it takes longer, and several times the memory.
        openvino_genai.ContinuousBatchingPipeline(
            str(file), tokenizer, openvino_genai.SchedulerConfig(), "NONE", **SAVE
        )
    except Exception as error:
        if not all((folder / name).is_file() for name in MODEL_FILES):
            raise ModelError(f"OpenVINO GenAI can't load {path}: {error}") from error
    for linked in folder.glob("*.gguf"):
        linked.unlink()
    model = openvino.Core().read_model(folder / MODEL_FILES[0])
    if rotate(model, original.rotation):
        openvino.save_model(model, scratch / MODEL_FILES[0], compress_to_fp16=False)
        for name in MODEL_FILES:
            (scratch / name).replace(folder / name)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": context_length}, indent=2) + "\n")
    return folder


def exported_folder(path: Path, context_length: int) -> Path:
    """Return the cached IR folder of :func:`export_gguf`, making it if necessary. Raises what that does."""

    def make(scratch: Path) -> Path:
        return export_gguf(path, context_length, scratch)

    return cached_form("original", path, (str(context_length), _VERSION), make)


_VERSION = "1"
"""Change it when exports have other weights or another graph."""


def link(path: Path, folder: Path) -> Path:
    """Return a link in ``folder``, where GenAI can save an IR, to the GGUF file at ``path``. It must be writable.

    The parts of a split file get links with their names, by which GenAI finds them.
    """
    files = parts(path)
    for file in files:
        (folder / file.name).symlink_to(file.absolute())
    return folder / files[0].name


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
