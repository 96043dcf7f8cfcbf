"""A model's identity, found from its files alone, so that it is the same on every host."""

import hashlib
from pathlib import Path

_SAMPLE = 1 << 20
"""Bytes to read at each end of a file: weights of one size that differ, differ there too (headers, last layer)."""


def model_identity(path: Path) -> str:
    """Return a hash over the sizes and the ends of a GGUF file, or of an IR folder's ``.xml`` and ``.bin`` files.

    Raises :class:`OSError` when a file can't be read.
    """
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.suffix in {".xml", ".bin"})
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{size}\n".encode())
        with file.open("rb") as content:
            digest.update(content.read(_SAMPLE))
            content.seek(max(size - _SAMPLE, 0))
            digest.update(content.read(_SAMPLE))
    return digest.hexdigest()


def model_bytes(path: Path) -> int:
    """Return the size in bytes of the model file, or of all files in the model folder."""
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()) if file.is_file())
