"""Bounds on the scans and blocks of image files, checked before an image is decoded.

Decoders go over the whole image once per scan, and parse blocks one by one: a small file of many is as expensive as a
large image. Files that break the rules of their format are left to the decoders.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice

from worker.images.errors import ImageError

_MAX_SCANS = 100
"""Maximum number of scans of a JPEG file. Progressive files usually have 10."""

_MIN_BLOCKS = 100_000
"""Number of blocks that every file may have; they take half a second. Larger files may have one for each 64 bytes."""

_SCAN = 0xDA
_END_OF_JPEG = 0xD9
_SEGMENT = re.compile(rb"\xff+([\x02-\xcf\xd9-\xfe])")
"""A marker that starts a segment. Others are parts of a scan: stuffed bytes (0), restarts (D0 to D7)."""


def check_blocks(file: bytes) -> None:
    """Raise :class:`ImageError` if ``file`` has too many scans or blocks. At most linear in its size."""
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
