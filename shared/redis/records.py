"""Unreadable records in the store: what decoding raises, and one log line for each record.

Readers skip such records: they may come from another version, and must not affect other requests.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

_Record = TypeVar("_Record")

logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, RecursionError)
"""Exceptions of decoding a record: :class:`msgspec.DecodeError` and :class:`UnicodeDecodeError` are ValueErrors."""

_MAX_REPORTED = 1024
"""Maximum number of remembered reports, which bounds memory."""

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


@contextmanager
def skipped_unreadable(record: str) -> Iterator[None]:
    """Report and suppress errors of decoding ``record``."""
    try:
        yield
    except UNREADABLE as error:
        report_unreadable(record, error)


def decode_record(decoder: msgspec.msgpack.Decoder[_Record], key: str, record: bytes | None) -> _Record | None:
    """Return the MessagePack ``record`` under ``key``, or None if there is none. Unreadable ones are reported."""
    if record is None:
        return None
    try:
        return decoder.decode(record)
    except UNREADABLE as error:
        report_unreadable(key, error)
        return None
