"""The chat template that an operator gives in place of the model's own."""

from pathlib import Path

from worker.model_source import ModelError

_MOST = 65_536
"""Bytes of a template: it goes to the prompt process on its command line, of which Linux allows 128 KiB."""


def read_template(file: str) -> str:
    """Return the text of ``file``; nothing if no file is given. Raises :class:`ModelError` when it can't be used."""
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
