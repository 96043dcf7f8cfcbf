"""Data URLs (RFC 2397)."""

import msgspec

_PREFIX = "data:"
_BASE64 = ";base64"
_SHOWN = 64

MAX_IMAGE_BYTES = 10 * 2**20
"""Maximum size of an image file in bytes."""


class MediaError(Exception):
    """A file of a request can't be read. The message tells the client why, and starts with a lower-case letter."""


def decode_data_url(url: str, limit: int) -> bytes:
    """Return the file in a data URL with an image in base64. Raises :class:`MediaError`.

    ``limit`` is the maximum size of the file in bytes.
    """
    head, comma, data = url[len(_PREFIX) :].partition(",")
    if not comma or not head.lower().endswith(_BASE64):
        raise MediaError("the data URL is not in base64: expected 'data:image/png;base64,…' or another image type")
    kind = head[: -len(_BASE64)].partition(";")[0].strip().lower()
    if kind and not kind.startswith("image/"):
        raise MediaError(f"the data URL has the media type '{kind[:_SHOWN]}': expected an image")
    if len(data) > limit * 4 // 3 + 4:
        raise too_large(limit)
    try:
        # Three times as fast as binascii, and as strict.
        file = msgspec.convert(data, bytes)
    except msgspec.ValidationError:
        raise MediaError("the data URL is not valid base64") from None
    if len(file) > limit:
        raise too_large(limit)
    if not file:
        raise MediaError("the data URL is empty")
    return file


def is_data_url(url: str) -> bool:
    return url[: len(_PREFIX)].lower() == _PREFIX


def too_large(limit: int) -> MediaError:
    return MediaError(f"the file is larger than the maximum of {limit} bytes")
