"""Content codings of request bodies (RFC 9110, 8.4.1)."""

import sys
import zlib

from werkzeug.exceptions import RequestEntityTooLarge

from shared.protocol.errors import ProblemKind, refuse

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODINGS = ("gzip", "deflate", "zstd")
UNKNOWN_CODING = "unsupported_content_encoding"
"""Code of the refusal of another coding; its response has ``Accept-Encoding`` (RFC 7694)."""

_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
"""Memory for a zstd frame: 8 MB, as in RFC 9659."""
_EITHER, _RAW = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS
"""zlib's ``wbits`` for the formats of gzip and zlib, and for deflate data without either, which some clients send."""


def coding_of(header: str) -> str:
    """Return the coding that ``Content-Encoding`` names; empty without one. Raises :class:`RequestRefused`."""
    names = {name.strip().lower().removeprefix("x-") for name in header.split(",")} - {"", "identity"}
    if len(names) > 1 or not names <= set(CODINGS) or header.count(",") > len(CODINGS):
        raise refuse(
            ProblemKind.UNSUPPORTED_MEDIA,
            f"Unsupported content encoding '{header[:100]}': send the body uncompressed, or in one of {CODINGS}.",
            code=UNKNOWN_CODING,
        )
    return names.pop() if names else ""


def decode(body: bytes, coding: str, limit: int) -> bytes:
    """Return the data in ``body``. Raises :class:`RequestRefused`, and :class:`RequestEntityTooLarge` if it has more
    than ``limit`` bytes, of which no more are decoded."""
    decoder: zstd.ZstdDecompressor | zlib._Decompress
    if coding == "zstd":
        decoder = zstd.ZstdDecompressor(options=_WINDOW)
    else:
        has_head = len(body) > 1 and (coding == "gzip" or (body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0))
        decoder = zlib.decompressobj(_EITHER if has_head else _RAW)
    try:
        data = decoder.decompress(body, limit + 1)
    except (zlib.error, zstd.ZstdError) as error:
        raise refuse(ProblemKind.INVALID, f"The body is not {coding} data: {error}.") from None
    if len(data) > limit:
        raise RequestEntityTooLarge
    if not decoder.eof or decoder.unused_data:
        raise refuse(ProblemKind.INVALID, f"The body is not exactly one whole piece of {coding} data.")
    return data
