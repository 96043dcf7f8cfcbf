"""Parses model sources, ``[NAME=]SOURCE``, and validates served model names.

A source is ``default``, a GGUF file, an OpenVINO IR folder, or a Hugging Face id
``org/name[@revision][:file.gguf]``. This module neither reads models nor uses the network.
"""

import os
import re
from pathlib import Path
from typing import Literal

import msgspec

from shared.parsers.formats import PARSERS, ParserKind
from worker.model.split import parts, split_model_in, whole_name

SourceKind = Literal["default", "file", "folder", "hub"]

DEFAULT_SOURCE = "default"
DEFAULT_NAME = "SmolLM2-135M-Instruct"
MAX_NAME = 96

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]*(?:/[A-Za-z0-9][A-Za-z0-9._:@-]*)*")
_HUB = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
    r"(?:@(?P<revision>[\w.-]+(?:/[\w.-]+)*))?"
    r"(?::(?P<file>[\w.-]+(?:/[\w.-]+)*\.gguf))?",
    re.ASCII,
)
_QUANTISATION = re.compile(r"[-._](?:UD-)?(?:I?Q\d\w*|BF16|F?P?16|F?P?32|MXFP4\w*)$", re.IGNORECASE | re.ASCII)


MAKING_WEIGHTS = "making int8 weights"
"""Beginning of the detail of a worker that converts its model, once."""


class ModelError(Exception):
    """A model is not available. The message says what was looked for and what to do."""


def check_parser(kind: ParserKind, name: str) -> str:
    """Return what the name of a format means (see :data:`PARSERS`). Raises :class:`ModelError` for an unknown one."""
    known = PARSERS[kind]
    if name not in known:
        raise ModelError(f"The {kind.replace('_', ' ')} '{name}' is unknown. Known are {', '.join(known)}.")
    return known[name]


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed source. ``name`` is the served name; ``location`` is a path or a repository id."""

    kind: SourceKind
    name: str
    location: str
    revision: str | None = None
    file: str | None = None


def parse_source(text: str) -> ModelSource:
    """Parse ``[NAME=]SOURCE``.

    Without ``NAME``, a GGUF file is served under its stem without the quantisation suffix
    (``Qwen3-0.6B-Q4_K_M.gguf`` as ``Qwen3-0.6B``), an IR folder under the folder's name, a Hugging Face repository
    under its id. Any part of a split GGUF file, and a folder with nothing else, is the whole file. An existing path has
    precedence over other interpretations.
    Raises :class:`ModelError` when the text is none of these, or for an invalid name.
    """
    name, location = _split(text.strip())
    if location == DEFAULT_SOURCE:
        return ModelSource(kind="default", name=check_name(DEFAULT_NAME if name is None else name), location=location)
    path = Path(os.path.expanduser(location))
    if location and path.exists():
        # Not resolve(): in the Hugging Face cache, model.gguf is a link to a file without a suffix.
        path = Path(os.path.abspath(path))
        path = (split_model_in(path) or path) if path.is_dir() else parts(path)[0]
        kind: SourceKind = "folder" if path.is_dir() else "file"
        own_name = _as_name(path.name if kind == "folder" else _stem(path.name))
        return ModelSource(kind=kind, name=check_name(own_name if name is None else name), location=str(path))
    hub = _HUB.fullmatch(location)
    if hub is not None and not hub["repository"].endswith(".gguf"):
        return ModelSource(
            kind="hub",
            name=check_name(hub["repository"] if name is None else name),
            location=hub["repository"],
            revision=hub["revision"],
            file=hub["file"],
        )
    raise ModelError(
        f"The model source '{location}' was not found: there is no such file or folder, and it does not have the form "
        "of a Hugging Face id. Give 'default', a .gguf file, an OpenVINO IR folder, or org/name[@revision][:file.gguf]."
    )


def check_name(name: str) -> str:
    """Return ``name`` if clients can send it as ``model``: 1 to 96 letters, digits and ``. _ : @ - /``.

    Each part between slashes starts with a letter or digit, so that a name is safe in a URL path. Raises
    :class:`ModelError` for any other name.
    """
    if len(name) > MAX_NAME or _NAME.fullmatch(name) is None:
        raise ModelError(
            f"The model name {name!r} can't be served. Use 1 to {MAX_NAME} letters, digits and . _ : @ - /, each part "
            "between slashes starting with a letter or digit; set another name with NAME=SOURCE."
        )
    return name


def _split(text: str) -> tuple[str | None, str]:
    name, sign, location = text.partition("=")
    # A path may contain '=': /data/run=3/model.gguf has no NAME part.
    if not sign or name.startswith((".", "/", "~")) or os.path.exists(os.path.expanduser(text)):
        return None, text
    return name.strip(), location.strip()


def _stem(filename: str) -> str:
    return _QUANTISATION.sub("", whole_name(filename).removesuffix(".gguf"))


def _as_name(text: str) -> str:
    """Return ``text`` with characters that are invalid in a name replaced by dashes."""
    return re.sub(r"[^A-Za-z0-9._:@-]+", "-", text).strip("-._:@")[:MAX_NAME]
