"""Reads the chat templates of a GGUF file, or of an IR folder in the order of Hugging Face transformers."""

from pathlib import Path
from typing import Any

import msgspec

from worker.model.gguf import GGUFError, read_header
from worker.model.source import ModelError

_TOOL_USE = "tool_use"


class OwnTemplates(msgspec.Struct, frozen=True):
    """The texts of a model's templates, and the file of ``default``; empty without.

    ``tool_use`` is for requests with tools.
    """

    default: str = ""
    tool_use: str = ""
    file: str = ""


def own_templates(path: Path) -> OwnTemplates:
    """Return the templates in the GGUF file, or in the files of the IR folder, at ``path``.

    ``chat_template.jinja`` and ``additional_chat_templates`` have precedence over ``tokenizer_config.json``. The copy
    of a template inside ``openvino_tokenizer.xml`` is not one of them. Unreadable files count as absent.
    """
    if not path.is_dir():
        try:
            metadata = read_header(path).metadata
        except (OSError, GGUFError):
            return OwnTemplates()
        default, tool_use = (str(metadata.get(f"tokenizer.chat_template{name}", "")) for name in ("", f".{_TOOL_USE}"))
        return OwnTemplates(default=default, tool_use=tool_use, file=path.name if default else "")
    listed = _config(path / "tokenizer_config.json").get("chat_template")
    named: dict[str, Any] = {"default": listed} if isinstance(listed, str) else {}
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict) and isinstance(item.get("template"), str):
            named[str(item.get("name"))] = item["template"]
    default = _text(path / "chat_template.jinja")
    return OwnTemplates(
        default=default or named.get("default", ""),
        tool_use=_text(path / "additional_chat_templates" / f"{_TOOL_USE}.jinja") or named.get(_TOOL_USE, ""),
        file="chat_template.jinja" if default else "tokenizer_config.json" if named else "",
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _config(file: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}


_MOST = 65_536
"""Maximum size in bytes. The template is passed on a command line; Linux limits an argument to 128 KiB."""


def read_template(file: str) -> str:
    """Return the text of ``file``, empty without a file. Raises :class:`ModelError` for an unusable file."""
    if not file:
        return ""
    try:
        with Path(file).open("rb") as content:
            raw = content.read(_MOST + 1)
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"The chat template {file} can't be read: {error}") from error
    if len(raw) > _MOST:
        raise ModelError(f"The chat template {file} is larger than {_MOST} bytes.")
    if not text.strip() or "\0" in text:
        raise ModelError(f"The chat template {file} is {'empty' if not text.strip() else 'no text'}.")
    return text
