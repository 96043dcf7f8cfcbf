"""A model's identity: a digest over the whole of its files, the same on every host.

Reading gigabytes takes seconds, so a file's digest is kept in the user's cache and holds until the file changes.
"""

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from worker.user_cache import user_cache

_PARTS = frozenset({".xml", ".bin", ".json", ".jinja"})
"""What an IR folder's answers depend on: weights, tokenizer, configuration, chat template."""

_ALGORITHM = "blake2b"
"""The fastest of the standard library's on processors without instructions for SHA."""

_TIMESTAMP_TICK = 2_000_000_000
"""Nanoseconds within which two changes of a file may have the same time, on the coarsest of file systems."""


class _Kept(msgspec.Struct, frozen=True):
    """A digest and the state of the file that it was computed of.

    The time of the last status change is part of the state: unlike the modification time, ``cp -p`` and ``touch``
    can't set it back.
    """

    algorithm: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: str


def model_identity(path: Path) -> str:
    """Return a digest of a GGUF file's content, or of the names and contents of an IR folder's files.

    Raises :class:`OSError` when a file can't be read.
    """
    if path.is_file():
        return _file_digest(path)
    files = sorted(file for file in path.iterdir() if file.suffix in _PARTS and file.is_file())
    lines = "".join(f"{file.name} {_file_digest(file)}\n" for file in files)
    return hashlib.new(_ALGORITHM, lines.encode()).hexdigest()


def _file_digest(file: Path) -> str:
    """Return the digest of a file's content, from the cache if the file has not changed since."""
    entry = _entry(file)
    with file.open("rb") as content:
        before = _state(content.fileno())
        if (kept := _read(entry)) is not None and msgspec.structs.replace(kept, digest="") == before:
            return kept.digest
        digest = hashlib.file_digest(content, _ALGORITHM).hexdigest()
        settled = time.time_ns() - before.ctime_ns > _TIMESTAMP_TICK
        if entry is not None and settled and _state(content.fileno()) == before:
            _write(entry, msgspec.structs.replace(before, digest=digest))
    return digest


def _state(descriptor: int) -> _Kept:
    stat = os.fstat(descriptor)
    return _Kept(
        algorithm=_ALGORITHM,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        ctime_ns=stat.st_ctime_ns,
        inode=stat.st_ino,
        digest="",
    )


def _entry(file: Path) -> Path | None:
    """Where the digest of ``file`` is kept; nowhere for a user without a home."""
    # Not resolved: where a link leads is told by the inode.
    name = hashlib.sha256(os.fsencode(file.absolute())).hexdigest()
    with suppress(RuntimeError):
        return user_cache() / "digests" / f"{name}.json"
    return None


def _read(entry: Path | None) -> _Kept | None:
    if entry is not None:
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(entry.read_bytes(), type=_Kept)
    return None


def _write(entry: Path, kept: _Kept) -> None:
    """Keep a digest where there is a cache that may be written to; another process sees all of it or nothing."""
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=entry.parent, delete=False) as scratch:
            scratch.write(msgspec.json.encode(kept))
        Path(scratch.name).replace(entry)
