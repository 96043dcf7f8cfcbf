"""Messages between the supervisor and the image process.

The image process decodes image files. One that takes seconds, or crashes its decoder, delays other images only.
"""

import msgspec


class ImageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the image process, passed as JSON on its command line.

    ``file_pixels`` is the maximum number of pixels of an image file.
    """

    file_pixels: int = 64 * 2**20


class DecodeImage(msgspec.Struct, frozen=True, array_like=True):
    """Decode the image in ``file``, which has this ``digest``, to at most ``pixels`` pixels. ``low`` is low detail.

    Tenants do not share decoded images: one could tell by the time which images others have sent.
    """

    tenant: str
    digest: str
    file: bytes
    low: bool
    pixels: int


class DecodedImage(msgspec.Struct, frozen=True, array_like=True):
    """RGB pixels, row by row, three bytes each."""

    width: int
    height: int
    pixels: bytes
