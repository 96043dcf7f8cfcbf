"""Records of the store that cannot be read: what decoding raises, and one log line for each of them.

A reader of the store skips such a record and goes on: it may come from a newer version, or from anybody who can write
to the store, and must cost nobody else anything.
"""

import logging
from collections.abc import Iterable

from redis.exceptions import ResponseError

logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, RecursionError)
"""What decoding a record raises: :class:`msgspec.DecodeError` and :class:`UnicodeDecodeError` are ValueErrors."""

_MOST_REPORTED = 1024
"""Reports that are remembered, so that a store full of foreign records does not fill the memory."""

_reported: set[tuple[str | bytes, str]] = set()


def report_unreadable(record: str | bytes, error: Exception) -> None:
    """Log that ``record``, named by its key or id, cannot be read; once for each record and error."""
    report = (record, str(error))
    if report in _reported:
        return
    if len(_reported) >= _MOST_REPORTED:
        _reported.clear()
    _reported.add(report)
    logger.error("record %.200r in the store cannot be read and is skipped: %.500s", record, error)


def readable_names(index: str, names: Iterable[bytes]) -> list[str]:
    """Return the ``names`` in ``index`` as text; those that are not UTF-8 are reported and left out."""
    readable = []
    for name in names:
        try:
            readable.append(name.decode())
        except UnicodeDecodeError as error:
            report_unreadable(f"{index} {name!r}", error)
    return readable


def is_wrong_type(error: Exception) -> bool:
    """Whether a command failed because its key holds another type of value, such as a string in place of a hash."""
    return isinstance(error, ResponseError) and "WRONGTYPE" in str(error)
