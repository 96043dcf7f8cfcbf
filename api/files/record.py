"""The record of a file."""

import re
import uuid
from typing import Literal

import msgspec

FilePurpose = Literal["batch", "batch_output"]

LONGEST_RETENTION = 30 * 86_400
"""Maximum retention of a file in seconds, and the default: OpenAI's."""

_ID = re.compile(r"file-[0-9a-f]{32}")


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file, as in the store. Times are Unix seconds; ``owner`` is the id of an API key, or empty without one."""

    id: str
    owner: str
    filename: str
    size: int
    purpose: FilePurpose
    created: int
    expires: int


def new_file_id() -> str:
    return f"file-{uuid.uuid4().hex}"


def is_file_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None
