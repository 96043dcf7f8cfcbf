"""Files of clients: their contents in a :class:`~api.files.storage.Storage`, their records in the store."""

from api.files.record import FilePurpose, FileRecord
from api.files.storage import DirectoryStorage, FilesDirError, Storage, storage_root
from api.files.store import FilePage, FileSelection, FileStore, TooManyFiles

__all__ = [
    "DirectoryStorage",
    "FilePage",
    "FilePurpose",
    "FileRecord",
    "FileSelection",
    "FileStore",
    "FilesDirError",
    "Storage",
    "TooManyFiles",
    "storage_root",
]
