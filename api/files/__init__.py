"""Files of clients: their contents in a :class:`~api.files.storage.Storage`, their records in the store."""

from api.files.folder import storage_root
from api.files.record import FilePurpose, FileRecord
from api.files.storage import DirectoryStorage, FilesDirError, Storage
from api.files.store import (
    MAX_UPLOADS,
    FilePage,
    FileSelection,
    FilesTooLarge,
    FileStore,
    TooManyFiles,
    TooManyUploads,
)

__all__ = [
    "MAX_UPLOADS",
    "DirectoryStorage",
    "FilePage",
    "FilePurpose",
    "FileRecord",
    "FileSelection",
    "FileStore",
    "FilesDirError",
    "FilesTooLarge",
    "Storage",
    "TooManyFiles",
    "TooManyUploads",
    "storage_root",
]
