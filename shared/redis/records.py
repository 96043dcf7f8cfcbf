"""Unreadable records in the store: what decoding raises, and one log line for each record.

Readers skip such records. They may come from a newer version or from anyone with write access to the store, and must
not affect other requests.
"""

import logging
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from redis.exceptions import ResponseError

_Record = TypeVar("_Record")

logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, RecursionError)
"""Exceptions of decoding a record: :class:`msgspec.DecodeError` and :class:`UnicodeDecodeError` are ValueErrors."""

MAX_NAME = 512
"""Maximum length in bytes of the name of a model, worker or replica."""

_MAX_REPORTED = 1024
"""Maximum number of remembered reports, which bounds memory when the store is full of foreign records."""

_reported: set[tuple[str | bytes, str]] = set()


def report_unreadable(record: str | bytes, error: Exception) -> None:
    """Log that ``record``, given by key or id, cannot be read; once per record and error."""
    report = (record, str(error))
    if report in _reported:
        return
    if len(_reported) >= _MAX_REPORTED:
        _reported.clear()
    _reported.add(report)
    logger.error("record %.200r in the store cannot be read and is skipped: %.500s", record, error)


def decode_record(decoder: msgspec.msgpack.Decoder[_Record], key: str, record: bytes | None) -> _Record | None:
    """Return the MessagePack ``record`` under ``key``, or None if there is none. Unreadable ones are reported."""
    if record is None:
        return None
    try:
        return decoder.decode(record)
    except UNREADABLE as error:
        report_unreadable(key, error)
        return None


def readable_names(index: str, names: Iterable[bytes]) -> list[str]:
    """Return the ``names`` in ``index`` as text. Names that are too long or not UTF-8 are reported and skipped."""
    readable = []
    for name in names:
        try:
            if len(name) > MAX_NAME:
                raise ValueError(f"a name has at most {MAX_NAME} bytes")
            readable.append(name.decode())
        except ValueError as error:
            report_unreadable(f"{index} {name[:MAX_NAME]!r}", error)
    return readable


def is_wrong_type(error: Exception) -> bool:
    """Return whether a command failed because its key holds another type of value."""
    return isinstance(error, ResponseError) and "WRONGTYPE" in str(error)
