"""Makes tiny GGUF files for tests."""

import struct
from collections.abc import Mapping

Value = int | float | bool | str | list[str] | list[int]


_F32 = 0
_ALIGNMENT = 32
_FLOAT_BYTES = 4


def gguf_bytes(metadata: Mapping[str, Value], *, version: int = 3, tensors: Mapping[str, int] | None = None) -> bytes:
    """Return a GGUF file that holds ``metadata``: ints as u32, floats as f32, lists as arrays.

    ``tensors`` are names and numbers of elements; each becomes a vector of zeros in f32.
    """
    tensors = tensors or {}
    pairs = b"".join(_text(key) + _value(value) for key, value in metadata.items())
    described, size = b"", 0
    for name, elements in tensors.items():
        described += _text(name) + struct.pack("<IQIQ", 1, elements, _F32, size)
        size += _aligned(elements * _FLOAT_BYTES)
    header = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata)) + pairs + described
    return header.ljust(_aligned(len(header)), b"\0") + bytes(size) if tensors else header


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(_text(str(item)) for item in value)
        case _:
            return struct.pack("<IIQ", 9, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)
