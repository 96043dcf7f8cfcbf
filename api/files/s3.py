"""Storage of files in a bucket of S3, or of another server with its API.

Credentials, region and endpoint come from the usual variables (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``...).

Objects can't grow. A file that grows is a set of **parts**, one object for each write, named after the file and the
offset. Its content is the chain of parts from offset 0, each of which begins where the one before ends. Parts of the
same offset replace each other, so a repeated write changes nothing.
"""

import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import groupby
from typing import BinaryIO, NamedTuple, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from api.files.storage import FilesDirError, StoredName, check_free, check_name

_URL = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")
_REFUSED = re.compile(r"status code: 4\d\d")
_MARKER = ".folder"
"""An object in each folder. Names of files don't begin with a dot."""

_CHUNK = 8 * 2**20
"""Bytes per part of a multipart upload."""
_UPLOADS_AT_A_TIME = 2

_READ_AHEAD = 2 * 2**20
"""Bytes per request when a file is read."""
_PIECE = 256 * 1024
"""Bytes that are copied at a time."""

_DOWNLOADS_AT_A_TIME = 8

_Value = TypeVar("_Value")


class S3Root:
    """A bucket, or a prefix of one, with a folder for each service that shares it."""

    def __init__(self, url: str, min_free: int = 0) -> None:
        """``url`` is ``s3://BUCKET`` or ``s3://BUCKET/PREFIX``. ``min_free`` is the space in bytes that uploads leave
        in the directory for temporary files. Raises :class:`FilesDirError`."""
        self._min_free = min_free
        match = _URL.fullmatch(url)
        if match is None:
            raise FilesDirError(f"--files-dir is malformed: {url}. Expected s3://BUCKET or s3://BUCKET/PREFIX")
        self._url = url.rstrip("/")
        self._known: set[str] = set()
        try:
            self._store = S3Store(
                match[1],
                prefix=(match[2] or "").strip("/") or None,
                # For endpoints that are named with http://; the default one is https.
                client_options={"allow_http": True, "timeout": timedelta(seconds=60)},
                retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=20)},
            )
        except (BaseError, ValueError) as error:
            raise FilesDirError(f"{url} can't be used as --files-dir: {_reason(error)}") from None

    def check(self) -> None:
        """Raise :class:`FilesDirError` if the server refuses access, and :class:`OSError` if it can't be reached."""
        try:
            _call(lambda: next(iter(obstore.list(self._store, chunk_size=1)), None))
        except OSError as error:
            if _REFUSED.search(str(error)):
                raise FilesDirError(
                    f"{self._url} can't be used as --files-dir: {error} "
                    "Does the bucket exist, and are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and "
                    "AWS_ENDPOINT_URL right?"
                ) from None
            raise

    def create(self, folder: str) -> None:
        _write(lambda: obstore.put(self._store, f"{folder}/{_MARKER}", b""))

    def remove(self, folder: str) -> None:
        _write(lambda: obstore.delete(self._store, f"{folder}/{_MARKER}"))

    def storage(self, folder: str) -> "S3Storage":
        """Return the storage in a folder. Raises :class:`FileNotFoundError` if it does not exist."""
        if folder not in self._known:
            try:
                _call(lambda: obstore.head(self._store, f"{folder}/{_MARKER}"))
            except FileNotFoundError:
                raise FileNotFoundError(f"{self._url}/{folder} is missing") from None
            self._known.add(folder)
        return S3Storage(self._store, folder, self._min_free)


class _Part(NamedTuple):
    path: str
    offset: int
    size: int


class S3Storage:
    """Files in one folder of a bucket."""

    write_every = 1.0

    def __init__(self, store: S3Store, folder: str, min_free: int = 0) -> None:
        self._store = store
        self._min_free = min_free
        self._folder = f"{folder}/"

    def create(self) -> "_S3Writer":
        """Start a new file, in the directory for temporary files until it is complete."""
        return _S3Writer(self, self._min_free)

    def open(self, name: str) -> BinaryIO:
        return io.BufferedReader(_Reader(self._store, self._path(name)), _PIECE)

    def open_local(self, name: str) -> BinaryIO:
        """Copy a file into an unnamed one in the directory for temporary files, and return that."""
        file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by the caller
        try:
            parts = self._chain(name)
            if parts:
                self._gather(parts, file.fileno())
            else:
                with self.open(name) as source:
                    shutil.copyfileobj(source, file, _READ_AHEAD)
            file.seek(0)
            return file
        except BaseException:
            file.close()
            raise

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        path = f"{self._path(name)}/{offset:015d}"
        _write(lambda: obstore.put(self._store, path, data))

    def remove(self, name: str) -> None:
        path = self._path(name)
        parts = [found.path for found in self._parts(name)]
        _write(lambda: obstore.delete(self._store, [*parts, path]))

    def names(self) -> Iterator[StoredName]:
        found = ((name, modified) for name, modified in self._objects() if not name.startswith("."))
        for name, group in groupby(found, key=lambda entry: entry[0]):
            yield StoredName(name, max(modified for _, modified in group))

    def upload(self, name: str, file: BinaryIO) -> None:
        """Put the content of ``file`` under ``name``, in parts if it is large."""
        file.seek(0)
        path = self._path(name)
        _write(lambda: obstore.put(self._store, path, file, chunk_size=_CHUNK, max_concurrency=_UPLOADS_AT_A_TIME))

    def _path(self, name: str) -> str:
        return self._folder + check_name(name)

    def _objects(self) -> Iterator[tuple[str, float]]:
        """Yield the file to which each object belongs, and when the object was written."""
        pages = iter(obstore.list(self._store, self._folder))
        while page := _call(lambda: next(pages, None)):
            for entry in page:
                name = entry["path"].removeprefix(self._folder).partition("/")[0]
                yield name, entry["last_modified"].timestamp()

    def _parts(self, name: str) -> Iterator[_Part]:
        pages = iter(obstore.list(self._store, f"{self._path(name)}/"))
        while page := _call(lambda: next(pages, None)):
            for entry in page:
                yield _Part(entry["path"], int(entry["path"].rpartition("/")[2]), entry["size"])

    def _chain(self, name: str) -> list[_Part]:
        """Return the parts that are the content of a file that grows. Others are left from a write that was lost."""
        found = {part.offset: part for part in self._parts(name)}
        chain: list[_Part] = []
        end = 0
        while (part := found.get(end)) is not None and part.size:
            chain.append(part)
            end += part.size
        return chain

    def _gather(self, parts: list[_Part], descriptor: int) -> None:
        """Copy parts to their offsets in a file."""

        def copy(part: _Part) -> None:
            data = _call(lambda: obstore.get_range(self._store, part.path, start=0, length=part.size))
            os.pwrite(descriptor, data, part.offset)

        with ThreadPoolExecutor(_DOWNLOADS_AT_A_TIME) as pool:
            for _ in pool.map(copy, parts):
                pass


class _S3Writer:
    """Writes a file to the disk first: an upload that breaks off leaves nothing in the bucket."""

    def __init__(self, storage: S3Storage, min_free: int) -> None:
        self._storage = storage
        self._min_free = min_free
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by discard

    def write(self, data: bytes) -> None:
        check_free(tempfile.gettempdir(), len(data), self._min_free)
        self._file.write(data)

    def commit(self, name: str) -> None:
        self._storage.upload(name, self._file)

    def discard(self) -> None:
        with suppress(OSError):  # It writes what is buffered, for which a full disk has no space.
            self._file.close()


class _Reader(io.RawIOBase):
    """An object as a file."""

    def __init__(self, store: S3Store, path: str) -> None:
        self._reader = _call(lambda: obstore.open_reader(store, path, buffer_size=_READ_AHEAD))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = _call(lambda: self._reader.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)


def _call(request: Callable[[], _Value]) -> _Value:
    """Return the result of a request. Raises :class:`OSError`, and :class:`FileNotFoundError` without an object."""
    try:
        return request()
    except FileNotFoundError as error:
        raise FileNotFoundError(_reason(error)) from None
    except (BaseError, OSError) as error:
        raise OSError(_reason(error)) from None


def _write(request: Callable[[], object]) -> None:
    """Run a request that writes. Raises :class:`OSError`; a missing bucket is no missing file."""
    try:
        _call(request)
    except FileNotFoundError as error:
        raise OSError(str(error)) from None


def _reason(error: Exception) -> str:
    """Return the first paragraph of an error's message, in one line; the rest is its structure in Rust."""
    return " ".join(str(error).partition("\n\n")[0].split())
