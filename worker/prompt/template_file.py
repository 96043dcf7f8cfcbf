"""Reads the chat template file of ``--chat-template``, which replaces the model's own."""

from pathlib import Path

from worker.model.source import ModelError

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
