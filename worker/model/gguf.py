"""Reads the header of a GGUF file without loading the model: metadata, and the descriptions of its tensors.

The layout follows the GGUF specification, versions 2 and 3 (https://github.com/ggml-org/ggml, docs/gguf.md):
magic, version, number of tensors, number of pairs, then the pairs of key and typed value, the description of each
tensor, and the tensors' data, little endian. Arrays (the vocabulary) are read on demand, so a header of a few megabytes
takes milliseconds.
"""

import math
import mmap
import struct
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

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


class TensorType(NamedTuple):
    """A type of tensor elements: its name in llama.cpp, and the elements and bytes per block."""

    name: str
    elements: int
    size: int


TENSOR_TYPES = {
    0: TensorType("F32", 1, 4), 1: TensorType("F16", 1, 2), 2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20), 6: TensorType("Q5_0", 32, 22), 7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34), 10: TensorType("Q2_K", 256, 84), 11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144), 13: TensorType("Q5_K", 256, 176), 14: TensorType("Q6_K", 256, 210),
    16: TensorType("IQ2_XXS", 256, 66), 17: TensorType("IQ2_XS", 256, 74), 18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50), 20: TensorType("IQ4_NL", 32, 18), 21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82), 23: TensorType("IQ4_XS", 256, 136), 29: TensorType("IQ1_M", 256, 56),
    30: TensorType("BF16", 1, 2), 34: TensorType("TQ1_0", 256, 54), 35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
}  # fmt: skip
"""The types by number. Tensors of other types count as 0 bytes."""


class Array(NamedTuple):
    """An array of metadata: the type of its items, its length, and where they start in the file, in bytes."""

    kind: int
    length: int
    start: int


class Tensor(NamedTuple):
    """A tensor: its dimensions, that of adjacent elements first, its type, and where it starts in the file (bytes)."""

    shape: tuple[int, ...]
    kind: int
    start: int

    @property
    def type_name(self) -> str:
        """The name of its type, or its number."""
        known = TENSOR_TYPES.get(self.kind)
        return known.name if known else str(self.kind)

    @property
    def size(self) -> int:
        """Number of bytes."""
        known = TENSOR_TYPES.get(self.kind, TensorType("", 1, 0))
        return math.prod(self.shape) // known.elements * known.size


class Header(NamedTuple):
    """The header of a GGUF file. Texts over 1 MiB are left out."""

    metadata: dict[str, Scalar]
    arrays: dict[str, Array]
    tensors: dict[str, Tensor]


class GGUFError(Exception):
    """The file is not a readable GGUF file. The message names the file and the reason."""


def read_header(path: Path) -> Header:
    """Return the header of the GGUF file at ``path``.

    Raises :class:`GGUFError` when the file is no GGUF file, is truncated, or exceeds the limits, and :class:`OSError`
    when it can't be opened.
    """
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data).header()
        except (ValueError, OverflowError, struct.error) as error:
            # mmap refuses an empty file, struct a read past the end: either way the file is truncated.
            reason = str(error) if isinstance(error, _Malformed) else _CUT_SHORT
            raise GGUFError(f"{path} can't be read as a GGUF file: {reason}") from None


def read_array(path: Path, array: Array) -> list[bytes] | list[int] | list[float]:
    """Return the items of an array in the header of the GGUF file at ``path``: bytes are the UTF-8 of a text."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if array.kind != _STRING:
            return list(struct.unpack_from(f"<{array.length}{_CODES[array.kind]}", data, array.start))
        texts, unpack, at = [], _LENGTH.unpack_from, array.start
        for _ in repeat(None, array.length):
            end = at + 8 + unpack(data, at)[0]
            texts.append(data[at + 8 : end])
            at = end
        return texts


class _Malformed(ValueError):
    """The header is invalid; the message says how."""


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def header(self) -> Header:
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
        arrays: dict[str, Array] = {}
        for _ in range(count):
            key = self._text(_MAX_KEY)
            if key is None:
                raise _Malformed(f"it has a metadata key of more than {_MAX_KEY} bytes.")
            value = self._value(key)
            if isinstance(value, Array):
                arrays[key] = value
            elif value is not None:
                metadata[key] = value
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise _Malformed(f"its alignment is {alignment!r}.")
        described = [self._tensor() for _ in range(tensors)]
        start = -(-self._at // alignment) * alignment
        placed = {name: tensor._replace(start=start + tensor.start) for name, tensor in described}
        end = max((tensor.start + tensor.size for tensor in placed.values()), default=self._at)
        if end > len(self._data):
            raise _Malformed(f"it ends at {_amounts(len(self._data), end)}; is the download complete?")
        return Header(metadata, arrays, placed)

    def _tensor(self) -> tuple[str, Tensor]:
        """Read one tensor's name and description. It starts relative to the tensor data."""
        name = self._text(_MAX_KEY)
        if name is None:
            raise _Malformed(f"it has a tensor's name of more than {_MAX_KEY} bytes.")
        (dimensions,) = _TYPE.unpack_from(self._data, self._at)
        if dimensions > _MAX_DIMENSIONS:
            raise _Malformed(f"it has a tensor of {dimensions} dimensions; at most {_MAX_DIMENSIONS} are read.")
        shape = struct.unpack_from(f"<{dimensions}Q", self._data, self._at + _TYPE.size)
        self._at += _TYPE.size + 8 * dimensions
        kind, offset = _TYPE_AND_OFFSET.unpack_from(self._data, self._at)
        self._at += _TYPE_AND_OFFSET.size
        return name, Tensor(shape, kind, offset)

    def _value(self, key: str) -> Scalar | Array | None:
        kind: int = _TYPE.unpack_from(self._data, self._at)[0]
        self._at += _TYPE.size
        if kind == _STRING:
            return self._text(_MAX_TEXT)
        if kind == _ARRAY:
            return self._array(key)
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

    def _array(self, key: str) -> Array:
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
        return Array(kind, count, start)

    def _move(self, to: int) -> None:
        if to > len(self._data):
            raise _Malformed(_CUT_SHORT)
        self._at = to


def _amounts(present: int, whole: int) -> str:
    """Return both sizes in MB, or in bytes if they are equal in MB."""
    in_mb = [f"{size / 1e6:.0f} MB" for size in (present, whole)]
    return " of ".join(in_mb) if in_mb[0] != in_mb[1] else f"{present} of {whole} bytes"
