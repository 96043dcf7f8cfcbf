"""Decodes the image files of requests to RGB pixels of the size for the model.

Files are untrusted: only the decoders of four formats are enabled, the numbers of pixels, scans and blocks are checked
before any is decoded, and the memory is limited. The deadline of the image process bounds the time.
"""

import io
import math
import os
import re
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy
from PIL import Image, UnidentifiedImageError

from worker.images.messages import DecodedImage


class ImageError(ValueError):
    """An image can't be decoded. The message completes a sentence that starts with "The image"."""


@contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Let this process allocate at most ``size`` more bytes within the block; further allocations fail.

    Reserved memory counts even if it is never used. Has no effect on other systems than Linux.
    """
    if sys.platform != "linux":
        yield
        return
    import resource  # not available on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [_allocated() + size, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _allocated() -> int:
    """Return the bytes of this process's private writable memory."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")


_MAX_SCANS = 100
"""Maximum number of scans of a JPEG file. Progressive files usually have 10."""

_MIN_BLOCKS = 100_000
"""Number of blocks that every file may have; they take half a second. Larger files may have one for each 64 bytes."""

_SCAN = 0xDA
_END_OF_JPEG = 0xD9
_SEGMENT = re.compile(rb"\xff+([\x02-\xcf\xd9-\xfe])")
"""A marker that starts a segment. Others are parts of a scan: stuffed bytes (0), restarts (D0 to D7)."""


def check_blocks(file: bytes) -> None:
    """Raise :class:`ImageError` if ``file`` has too many scans or blocks. At most linear in its size.

    Decoders go over the whole image once per scan, and parse blocks one by one: a small file of many is as expensive as
    a large image. Files that break the rules of their format are left to the decoders.
    """
    reader = next((reader for start, reader in _READERS.items() if file.startswith(start)), None)
    if reader is None:
        return
    most = max(_MIN_BLOCKS, len(file) // 64)
    scans, count = 0, 0
    for scan in islice(reader(file), most + 1):
        count += 1
        scans += scan
        if scans > _MAX_SCANS:
            raise ImageError(f"has more than {_MAX_SCANS} scans (it is a progressive JPEG file); save it with fewer.")
    if count > most:
        raise ImageError(f"has more than {most} blocks; save it again without metadata.")


def _jpeg_segments(file: bytes) -> Iterator[bool]:
    """Yield for each segment whether it starts a scan."""
    position = 2
    while (marker := _SEGMENT.search(file, position)) is not None and (kind := marker[1][0]) != _END_OF_JPEG:
        yield kind == _SCAN
        position = marker.end() + max(2, int.from_bytes(file[marker.end() : marker.end() + 2]))


def _png_chunks(file: bytes) -> Iterator[bool]:
    position = 8
    while position < len(file):
        yield False
        position += 12 + int.from_bytes(file[position : position + 4])


def _gif_blocks(file: bytes) -> Iterator[bool]:
    position = 13 + _colours(file, 10)
    while position < len(file):
        match file[position]:
            case 0x21:  # an extension: its kind, then its sub-blocks
                position += 2
            case 0x2C:  # an image: its frame, colours and code size, then its sub-blocks
                position += 11 + _colours(file, position + 9)
            case _:
                return
        while position < len(file) and (size := file[position]):
            yield False
            position += 1 + size
        yield False
        position += 1


def _colours(file: bytes, flags: int) -> int:
    """Return the size of the table of colours that the flags at this position announce, in bytes."""
    value = file[flags] if flags < len(file) else 0
    return 3 << (value & 7) + 1 if value & 0x80 else 0


_READERS: dict[bytes, Callable[[bytes], Iterator[bool]]] = {
    b"\xff\xd8\xff": _jpeg_segments,
    b"\x89PNG": _png_chunks,
    b"GIF8": _gif_blocks,
}
"""Readers of the blocks of files that start with these bytes. WebP has no scans, and its chunks are parsed natively."""


_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_SIGNATURES = (b"\x89PNG", b"\xff\xd8\xff", b"RIFF", b"GIF8")
"""The first bytes of files of these formats."""

_DAMAGED = "can't be decoded: the file is truncated or damaged."
_LOW_SIDE = 512
"""Maximum length of a side in pixels with low detail."""

_MAX_RATIO = 200
"""Ratio of the sides from which on vision encoders refuse an image."""

_BYTES_PER_PIXEL = 20
"""Bytes of memory per pixel to decode an image, including copies. WebP with an alpha channel needs the most: 19.5."""

_MEMORY = 128 << 20
"""Additional bytes of memory to decode an image, for the file's metadata."""

_CACHE_BYTES = 64 << 20
"""Maximum size of the cached images in bytes."""

_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transposition to upright by the orientation in EXIF data."""

_OTHER_FORMATS = (
    ("a TIFF file", 0, (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    ("a BMP file", 0, (b"BM",)),
    ("an SVG or XML file", 0, (b"<svg", b"<?xml", b"<!DOCTYPE svg")),
    ("an HTML file", 0, (b"<!DOCTYPE html", b"<!doctype html", b"<html")),
    ("a PDF file", 0, (b"%PDF",)),
    ("an icon file", 0, (b"\0\0\1\0",)),
    ("a JPEG 2000 file", 0, (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51")),
    ("an AVIF file", 4, (b"ftypavif", b"ftypavis")),
    ("a HEIC file", 4, (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftyphevc")),
)
"""Formats that are refused by name: their description, and the bytes at an offset by which they are recognised."""

# ImageDecoder enforces its own limit.
Image.MAX_IMAGE_PIXELS = None


class ImageDecoder:
    """Decodes image files, and caches the most recently used images."""

    def __init__(self, *, file_pixels: int, cache_bytes: int = _CACHE_BYTES) -> None:
        """``file_pixels`` is the maximum number of pixels in a file, ``cache_bytes`` the maximum size of the cache."""
        self._file_pixels = file_pixels
        self._cache_bytes = cache_bytes
        self._memory = _MEMORY + _BYTES_PER_PIXEL * file_pixels
        self._cache: OrderedDict[tuple[str, bool, int], DecodedImage] = OrderedDict()
        self._size = 0

    def decode(self, file: bytes, *, key: str, low: bool, pixels: int) -> DecodedImage:
        """Return the image in ``file`` with at most ``pixels`` pixels. ``key`` identifies the file in the cache.

        With ``low``, it is at most 512 pixels wide and high.
        It is upright, on white where it is transparent. Colour profiles are ignored. Raises :class:`ImageError`.
        """
        cached_as = (key, low, pixels)
        if (cached := self._cache.get(cached_as)) is not None:
            self._cache.move_to_end(cached_as)
            return cached
        check_blocks(file)
        decoded = self._decode(file, low=low, pixels=pixels)
        self._cache[cached_as] = decoded
        self._size += len(decoded.pixels)
        while self._size > self._cache_bytes:
            _, oldest = self._cache.popitem(last=False)
            self._size -= len(oldest.pixels)
        return decoded

    def _decode(self, file: bytes, *, low: bool, pixels: int) -> DecodedImage:
        # Pillow warns about metadata that it can't read, which does not matter.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with memory_limit(self._memory), Image.open(io.BytesIO(file), formats=_FORMATS) as image:
                    return self._converted(image, low=low, pixels=pixels)
            except ImageError:
                raise
            except UnidentifiedImageError:
                if file.startswith(_SIGNATURES):
                    raise ImageError(_DAMAGED) from None
                raise ImageError(f"{_described(file)}; PNG, JPEG, WebP and still GIF files are read.") from None
            except MemoryError:
                raise ImageError("needs more memory to be decoded than is allowed.") from None
            except Exception as error:
                # Decoders raise all kinds of exceptions on damaged files: OSError, SyntaxError, struct.error, ...
                raise ImageError(_DAMAGED) from error

    def _converted(self, image: Image.Image, *, low: bool, pixels: int) -> DecodedImage:
        width, height = image.size
        if width * height > self._file_pixels:
            raise ImageError(
                f"is too large: it has {width} x {height} pixels, and at most {self._file_pixels} are decoded."
            )
        if max(image.size) >= _MAX_RATIO * min(image.size):
            raise ImageError(f"has {width} x {height} pixels: one side must be less than {_MAX_RATIO} times the other.")
        # The second image of an MPO file, which many phones write as JPEG, is a preview or a depth map.
        if image.format != "MPO" and getattr(image, "is_animated", False):
            raise ImageError("is animated; send a still image, such as one of its frames.")
        scale = min(1.0, math.sqrt(pixels / (width * height)))
        if low:
            scale = min(scale, _LOW_SIDE / max(image.size))
        size = max(1, int(width * scale)), max(1, int(height * scale))
        # JPEG decoders can scale down by powers of two, which saves time and memory.
        image.draft(None, size)
        image.load()
        turn = _TURNS.get(_orientation(image))
        resized = _in_eight_bits(image)
        if resized.size != size:
            resized = _with_plain_colours(resized).resize(size, Image.Resampling.BICUBIC)
        upright = _on_white(resized)
        if turn is not None:
            upright = upright.transpose(turn)
        return DecodedImage(upright.width, upright.height, upright.tobytes())


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """Return ``image`` with 8 bits per channel. Pillow would clip greyscale of 16 bits instead of scaling it."""
    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    values = numpy.asarray(image).clip(0, 0xFFFF) >> 8
    return Image.fromarray(values.astype(numpy.uint8))


def _with_plain_colours(image: Image.Image) -> Image.Image:
    """Return ``image`` in a mode whose values can be averaged."""
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image if image.mode in ("L", "CMYK") else image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    """Return ``image`` in RGB, on white where it is transparent."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    rgba = image.convert("RGBA")
    result = Image.new("RGB", image.size, "white")
    result.paste(rgba, mask=rgba.getchannel("A"))
    return result


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # invalid EXIF data does not make an image unreadable
        return 1


def _described(file: bytes) -> str:
    if not file:
        return "is empty"
    start = file[:64].lstrip() if file[:1].isspace() else file[:64]
    for name, offset, signs in _OTHER_FORMATS:
        if start[offset:].startswith(signs):
            return f"is {name}"
    return "is in no known format"
