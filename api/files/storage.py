"""Storage of file contents by name: a small interface, and its implementation as a directory. Another one is
:mod:`api.files.s3`.

All methods block; callers run them in threads. Names are made by this package, never by clients.
"""

import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_PARTIAL = ".partial"
"""Suffix of files that are not complete. Names that end so are never handed out."""


class FilesDirError(Exception):
    """``--files-dir`` can't be used."""


class StoredName(NamedTuple):
    """A file in the storage: its name and when it was last written (Unix seconds)."""

    name: str
    modified: float


class FileWriter(Protocol):
    """Writes a new file, which is invisible until it is complete."""

    def write(self, data: bytes) -> None:
        """Append ``data``."""

    def commit(self, name: str) -> None:
        """Make the file durable and visible under ``name``, replacing an older one."""

    def discard(self) -> None:
        """Delete the file unless it was committed."""


class Storage(Protocol):
    """Contents of files by name. Methods raise :class:`OSError`, and :class:`FileNotFoundError` for unknown names."""

    write_every: float
    """Least number of seconds between two writes into a file that grows."""

    def create(self) -> FileWriter:
        """Start a new file."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading from its start to its end."""

    def open_local(self, name: str) -> BinaryIO:
        """Open a file for reading in any order, with a file descriptor. It may be a copy on this machine."""

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        """Write durably into a file that grows, which this creates. Only one process writes to it."""

    def remove(self, name: str) -> None:
        """Delete a file, if there is one."""

    def names(self) -> Iterator[StoredName]:
        """Yield all files, including those that were never completed."""


class StorageRoot(Protocol):
    """What ``--files-dir`` names: a place with a folder for each service that shares it. Methods block, and raise
    :class:`OSError`."""

    def check(self) -> None:
        """Raise :class:`FilesDirError` if the place can never be used."""

    def create(self, folder: str) -> None:
        """Create a folder."""

    def remove(self, folder: str) -> None:
        """Delete an empty folder."""

    def storage(self, folder: str) -> Storage:
        """Return the storage in a folder. Raises :class:`FileNotFoundError` if it does not exist."""


class DirectoryRoot:
    def __init__(self, path: str, min_free: int = 0) -> None:
        """``path`` may be empty for the user's data folder. ``min_free`` is the free space that new files leave, in
        bytes."""
        self._path = path
        self._min_free = min_free

    def check(self) -> None:
        """Do nothing: the directory may be mounted later."""

    def create(self, folder: str) -> None:
        (self._root() / folder).mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove(self, folder: str) -> None:
        (self._root() / folder).rmdir()

    def storage(self, folder: str) -> "DirectoryStorage":
        """Return the storage in a folder. Raises :class:`FileNotFoundError` if it does not exist."""
        path = self._root() / folder
        if not path.is_dir():
            raise FileNotFoundError(f"{path} is missing")
        return DirectoryStorage(path, self._min_free)

    def _root(self) -> Path:
        return Path(self._path) if self._path else default_folder()


class DirectoryStorage:
    """Files in one directory, local or shared by all replicas."""

    write_every = 0.25

    def __init__(self, folder: Path, min_free: int = 0) -> None:
        self._folder = folder
        self._min_free = min_free

    def create(self) -> "_DirectoryWriter":
        self._make_folder()
        return _DirectoryWriter(self._folder, self._min_free)

    def open(self, name: str) -> BinaryIO:
        return self._path(name).open("rb")

    def open_local(self, name: str) -> BinaryIO:
        return self.open(name)

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        self._make_folder()
        descriptor = os.open(self._path(name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.seek(offset)
            file.write(data)
            file.flush()
            os.fsync(descriptor)

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def names(self) -> Iterator[StoredName]:
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        yield StoredName(entry.name, entry.stat(follow_symlinks=False).st_mtime)

    def _path(self, name: str) -> Path:
        return self._folder / check_name(name)

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)


class _DirectoryWriter:
    """Writes a file under a temporary name and renames it."""

    def __init__(self, folder: Path, min_free: int) -> None:
        self._folder = folder
        self._min_free = min_free
        self._path = folder / f"{uuid.uuid4().hex}{_PARTIAL}"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = open(descriptor, "wb")  # noqa: SIM115  # closed by commit or discard

    def write(self, data: bytes) -> None:
        check_free(self._folder, len(data), self._min_free)
        self._file.write(data)

    def commit(self, name: str) -> None:
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._path.replace(self._folder / name)
        _sync_folder(self._folder)

    def discard(self) -> None:
        self._path.unlink(missing_ok=True)
        with suppress(OSError):  # It writes what is buffered, for which a full disk has no space.
            self._file.close()


def _sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable, where the file system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_name(name: str) -> str:
    """Return ``name``. Raises :class:`ValueError` if it is not the name of a file in a storage."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name[:64]!r} is not the name of a file")
    return name


def check_free(folder: str | Path, size: int, floor: int) -> None:
    """Raise :class:`OSError` if writing ``size`` bytes into ``folder`` would leave less than ``floor`` bytes free."""
    free = shutil.disk_usage(folder).free
    if free - size < floor:
        raise OSError(errno.ENOSPC, f"{free} bytes are free in {folder}; {floor} must stay free")


def default_folder() -> Path:
    """Return the folder for files when no other is set, by the XDG Base Directory Specification.

    Raises :class:`RuntimeError` when the user has no home directory.
    """
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "vinoqueue" / "files"
