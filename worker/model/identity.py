"""Model identity: a digest of the contents of all its files, equal on every host.

Reading gigabytes takes seconds, so the digest of a file is cached in the user's cache until the file changes.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from worker.model.cache import user_cache, write_whole
from worker.model.split import parts

_PARTS = frozenset({".xml", ".bin", ".json", ".jinja", ".safetensors", ".onnx"})
"""Suffixes of the files in a folder that affect output: weights, tokenizer, configuration, chat template."""

_PLACES = ("*", "[0-9]*_*/*", "openvino/*", "onnx/*")
"""Where they are, besides the modules of an embedding model."""

_ALGORITHM = "blake2b"
"""The fastest algorithm of the standard library on CPUs without SHA instructions."""

_TIMESTAMP_TICK = 2_000_000_000
"""Coarsest timestamp resolution of file systems, in nanoseconds."""


class _CachedDigest(msgspec.Struct, frozen=True):
    """A cached digest, with the state of the file when it was computed.

    The state includes the time of the last status change, which ``cp -p`` and ``touch`` can't set, unlike the
    modification time.
    """

    algorithm: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: str


def model_identity(path: Path) -> str:
    """Return a digest of a GGUF file's content, or of the contents of its parts or an IR folder's files with names.

    Raises :class:`OSError` when a file can't be read.
    """
    files = model_files(path)
    if files == [path]:
        return _file_digest(path)
    folder = path if path.is_dir() else path.parent
    lines = "".join(f"{file.relative_to(folder)} {_file_digest(file)}\n" for file in files)
    return hashlib.new(_ALGORITHM, lines.encode()).hexdigest()


def model_files(path: Path) -> list[Path]:
    """Return the files that affect what the model at ``path`` generates, in order."""
    if not path.is_dir():
        return parts(path)
    found = (file for place in _PLACES for file in path.glob(place))
    return sorted(file for file in found if file.suffix in _PARTS and file.is_file())


def _file_digest(file: Path) -> str:
    """Return the digest of a file's content, from the cache if the file has not changed since."""
    entry = _entry(file)
    with file.open("rb") as content:
        before = _state(content.fileno())
        if (cached := _read(entry)) is not None and msgspec.structs.replace(cached, digest="") == before:
            return cached.digest
        digest = hashlib.file_digest(content, _ALGORITHM).hexdigest()
        settled = time.time_ns() - before.ctime_ns > _TIMESTAMP_TICK
        if entry is not None and settled and _state(content.fileno()) == before:
            write_whole(entry, msgspec.json.encode(msgspec.structs.replace(before, digest=digest)))
    return digest


def _state(descriptor: int) -> _CachedDigest:
    stat = os.fstat(descriptor)
    return _CachedDigest(
        algorithm=_ALGORITHM,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        ctime_ns=stat.st_ctime_ns,
        inode=stat.st_ino,
        digest="",
    )


def _entry(file: Path) -> Path | None:
    """Return the cache file for the digest of ``file``, or None for a user without a home directory."""
    # Not resolved: the inode in the state identifies the target of a link.
    name = hashlib.sha256(os.fsencode(file.absolute())).hexdigest()
    with suppress(RuntimeError):
        return user_cache() / "digests" / f"{name}.json"
    return None


def _read(entry: Path | None) -> _CachedDigest | None:
    if entry is not None:
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(entry.read_bytes(), type=_CachedDigest)
    return None
