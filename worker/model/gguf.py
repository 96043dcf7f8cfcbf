"""Reads the scalar metadata of a GGUF file without loading the model.

The layout follows the GGUF specification, versions 2 and 3 (https://github.com/ggml-org/ggml, docs/gguf.md):
magic, version, number of tensors, number of pairs, then the pairs of key and typed value, the description of each
tensor, and the tensors' data, little endian. Arrays (the vocabulary) are skipped, so a header of a few megabytes takes
milliseconds.
"""

import math
import mmap
import struct
from itertools import repeat
from pathlib import Path

Scalar = int | float | bool | str

_MAGIC = b"GGUF"
_HEADER = struct.Struct("<4sIQQ")
_ITEM_TYPE_AND_COUNT = struct.Struct("<IQ")
_TYPE = struct.Struct("<I")
_TYPE_AND_OFFSET = struct.Struct("<IQ")
_LENGTH = struct.Struct("<Q")
_STRING = 8
_ARRAY = 9
_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SCALARS = {number: struct.Struct("<" + code) for number, code in _CODES.items()}
_CUT_SHORT = "it ends within its header; is the download complete?"

_MAX_PAIRS = 10_000
_MAX_KEY = 65_535
_MAX_TEXT = 1 << 20
_MAX_ITEMS = 1 << 22
_MAX_TENSORS = 1 << 17
_MAX_DIMENSIONS = 4
"""Limits for a header. Real ones have dozens of pairs and vocabularies below a million items."""

_ALIGNMENT = 32
_BLOCKS = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    30: (1, 2),  # BF16
}
"""Elements and bytes per block, by tensor type. Tensors of other types count as 0 bytes."""


class GGUFError(Exception):
    """The file is not a readable GGUF file. The message names the file and the reason."""


def read_metadata(path: Path) -> dict[str, Scalar]:
    """Return the metadata of the GGUF file at ``path`` except its arrays and texts over 1 MiB.

    Raises :class:`GGUFError` when the file is no GGUF file, is truncated, or exceeds the limits, and :class:`OSError`
    when it can't be opened.
    """
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Header(data).metadata()
        except (ValueError, OverflowError, struct.error) as error:
            # mmap refuses an empty file, struct a read past the end: either way the file is truncated.
            reason = str(error) if isinstance(error, _Malformed) else _CUT_SHORT
            raise GGUFError(f"{path} can't be read as a GGUF file: {reason}") from None


class _Malformed(ValueError):
    """The header is invalid; the message says how."""


class _Header:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def metadata(self) -> dict[str, Scalar]:
        magic, version, tensors, count = _HEADER.unpack_from(self._data)
        self._at = _HEADER.size
        if magic != _MAGIC:
            raise _Malformed(f"it starts with {magic!r} instead of {_MAGIC!r}.")
        if version not in (2, 3):
            raise _Malformed(f"it has version {version}; versions 2 and 3 are known.")
        if count > _MAX_PAIRS:
            raise _Malformed(f"it claims {count} metadata entries; at most {_MAX_PAIRS} are read.")
        if tensors > _MAX_TENSORS:
            raise _Malformed(f"it claims {tensors} tensors; at most {_MAX_TENSORS} are read.")
        metadata: dict[str, Scalar] = {}
        for _ in range(count):
            key = self._text(_MAX_KEY)
            if key is None:
                raise _Malformed(f"it has a metadata key of more than {_MAX_KEY} bytes.")
            value = self._value(key)
            if value is not None:
                metadata[key] = value
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise _Malformed(f"its alignment is {alignment!r}.")
        end = self._tensors_end(tensors, alignment)
        if end > len(self._data):
            raise _Malformed(f"it ends at {_amounts(len(self._data), end)}; is the download complete?")
        return metadata

    def _tensors_end(self, count: int, alignment: int) -> int:
        """Return the end of the last tensor's data, in bytes from the start of the file."""
        ends = [self._tensor_end() for _ in range(count)]
        if not ends:
            return self._at
        return -(-self._at // alignment) * alignment + max(ends)

    def _tensor_end(self) -> int:
        """Skip one tensor description; return the end of its data, in bytes from the start of the tensor data."""
        self._text(_MAX_KEY)
        (dimensions,) = _TYPE.unpack_from(self._data, self._at)
        if dimensions > _MAX_DIMENSIONS:
            raise _Malformed(f"it has a tensor of {dimensions} dimensions; at most {_MAX_DIMENSIONS} are read.")
        shape = struct.unpack_from(f"<{dimensions}Q", self._data, self._at + _TYPE.size)
        self._at += _TYPE.size + 8 * dimensions
        kind, offset = _TYPE_AND_OFFSET.unpack_from(self._data, self._at)
        self._at += _TYPE_AND_OFFSET.size
        elements, size = _BLOCKS.get(kind, (1, 0))
        end: int = offset + math.prod(shape) // elements * size
        return end

    def _value(self, key: str) -> Scalar | None:
        kind: int = _TYPE.unpack_from(self._data, self._at)[0]
        self._at += _TYPE.size
        if kind == _STRING:
            return self._text(_MAX_TEXT)
        if kind == _ARRAY:
            self._skip_array(key)
            return None
        if kind not in _SCALARS:
            raise _Malformed(f"metadata entry '{key}' has the unknown type {kind}.")
        scalar: Scalar = _SCALARS[kind].unpack_from(self._data, self._at)[0]
        self._at += _SCALARS[kind].size
        return scalar

    def _text(self, limit: int) -> str | None:
        (length,) = _LENGTH.unpack_from(self._data, self._at)
        start = self._at + _LENGTH.size
        self._move(start + length)
        return self._data[start : start + length].decode("utf-8", "replace") if length <= limit else None

    def _skip_array(self, key: str) -> None:
        kind, count = _ITEM_TYPE_AND_COUNT.unpack_from(self._data, self._at)
        start = self._at + _ITEM_TYPE_AND_COUNT.size
        if count > _MAX_ITEMS:
            raise _Malformed(f"array '{key}' claims {count} items; at most {_MAX_ITEMS} are read.")
        if kind in _SCALARS:
            self._move(start + count * _SCALARS[kind].size)
        elif kind == _STRING:
            # Hot loop: the vocabulary is most of the header.
            unpack, data, at = _LENGTH.unpack_from, self._data, start
            for _ in repeat(None, count):
                at += 8 + unpack(data, at)[0]
            self._move(at)
        else:
            raise _Malformed(f"array '{key}' has items of type {kind}, which are not read.")

    def _move(self, to: int) -> None:
        if to > len(self._data):
            raise _Malformed(_CUT_SHORT)
        self._at = to


def _amounts(present: int, whole: int) -> str:
    """Return both sizes in MB, or in bytes if they are equal in MB."""
    in_mb = [f"{size / 1e6:.0f} MB" for size in (present, whole)]
    return " of ".join(in_mb) if in_mb[0] != in_mb[1] else f"{present} of {whole} bytes"
