"""Makes tiny GGUF files for tests."""

import struct
from collections.abc import Mapping

Value = int | float | bool | str | list[str] | list[int]


def gguf_bytes(metadata: Mapping[str, Value], *, version: int = 3) -> bytes:
    """Return a GGUF file without tensors that holds ``metadata``: ints as u32, floats as f32, lists as arrays."""
    pairs = b"".join(_text(key) + _value(value) for key, value in metadata.items())
    return struct.pack("<4sIQQ", b"GGUF", version, 0, len(metadata)) + pairs


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
