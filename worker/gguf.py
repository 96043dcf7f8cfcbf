"""Reads the scalar metadata of a GGUF file: what the model is, without loading it.

The layout follows the GGUF specification, versions 2 and 3 (https://github.com/ggml-org/ggml, docs/gguf.md):
magic, version, number of tensors, number of pairs, then the pairs of key and typed value, little endian.
Arrays (the vocabulary) are stepped over, not built, so a header of a few megabytes costs milliseconds.
"""

import mmap
import struct
from itertools import repeat
from pathlib import Path

Scalar = int | float | bool | str

_MAGIC = b"GGUF"
_HEADER = struct.Struct("<4sIQQ")
_ITEM_TYPE_AND_COUNT = struct.Struct("<IQ")
_TYPE = struct.Struct("<I")
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
"""Bounds on what a header may claim: a real one has dozens of pairs and vocabularies below a million items."""


class GGUFError(Exception):
    """The file is not a GGUF file that can be read; the message names it and says why."""


def read_metadata(path: Path) -> dict[str, Scalar]:
    """Return the metadata of the GGUF file at ``path`` except its arrays and texts over 1 MiB.

    Raises :class:`GGUFError` when the file is no GGUF file, is cut short, or claims absurd sizes, and
    :class:`OSError` when it can't be opened.
    """
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Header(data).pairs()
        except (ValueError, OverflowError, struct.error) as error:
            # mmap refuses an empty file, struct a read past the end: both mean a file that was cut short.
            reason = str(error) if isinstance(error, _Malformed) else _CUT_SHORT
            raise GGUFError(f"{path} can't be read as a GGUF file: {reason}") from None


class _Malformed(ValueError):
    """What is wrong with the header."""


class _Header:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def pairs(self) -> dict[str, Scalar]:
        magic, version, _tensors, count = _HEADER.unpack_from(self._data)
        self._at = _HEADER.size
        if magic != _MAGIC:
            raise _Malformed(f"it starts with {magic!r} instead of {_MAGIC!r}.")
        if version not in (2, 3):
            raise _Malformed(f"it has version {version}; versions 2 and 3 are known.")
        if count > _MAX_PAIRS:
            raise _Malformed(f"it claims {count} metadata entries; at most {_MAX_PAIRS} are read.")
        metadata: dict[str, Scalar] = {}
        for _ in range(count):
            key = self._text(_MAX_KEY)
            if key is None:
                raise _Malformed(f"it has a metadata key of more than {_MAX_KEY} bytes.")
            value = self._value(key)
            if value is not None:
                metadata[key] = value
        return metadata

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
            # One vocabulary is most of the header, so this loop is all that reading a header costs.
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
