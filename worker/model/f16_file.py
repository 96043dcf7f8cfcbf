"""Rewrites a GGUF file that OpenVINO GenAI can't read with the same model in f16, which it can."""

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy
from numpy.typing import NDArray

from worker.model.dequantise import DEQUANTISERS
from worker.model.gguf import TENSOR_TYPES, Header, Scalar, Tensor

_AT_ONCE = 1 << 22
"""Number of weights that are unpacked at once, a multiple of every block's."""

_ALIGNMENT = 32
_F32, _F16 = 0, 1
_FILE_TYPE = {"general.file_type": _F16}


def write_f16(parts: Sequence[tuple[Path, Header]], target: Path) -> None:
    """Write the GGUF file ``target`` with the model in ``parts``: matrices in f16, vectors in f32, no tokenizer.

    Raises :class:`OSError` if files can't be read or written, and :class:`KeyError` for a type that is not known.
    """
    metadata = parts[0][1].metadata
    architecture = str(metadata["general.architecture"])
    kept = {key: value for key, value in metadata.items() if key.startswith(f"{architecture}.")}
    pairs = {"general.architecture": architecture, **kept, **_FILE_TYPE}
    tensors = [(file, name, tensor) for file, header in parts for name, tensor in header.tensors.items()]
    described, end = b"", 0
    for _, name, tensor in tensors:
        dimensions = len(tensor.shape)
        kind, size = (_F32, 4) if dimensions == 1 else (_F16, 2)
        described += _text(name) + struct.pack(f"<I{dimensions}QIQ", dimensions, *tensor.shape, kind, end)
        end += _aligned(math.prod(tensor.shape) * size)
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs))
    header += b"".join(_text(key) + _value(value) for key, value in pairs.items()) + described
    with target.open("wb") as out:
        out.write(header.ljust(_aligned(len(header)), b"\0"))
        for file, _, tensor in tensors:
            for values in tensor_values(file, tensor):
                out.write(values.astype("<f4" if len(tensor.shape) == 1 else "<f2").tobytes())
            out.write(bytes(_aligned(out.tell()) - out.tell()))


def tensor_values(file: Path, tensor: Tensor) -> Iterator[NDArray[numpy.float32]]:
    """Yield the values of a tensor, block by block, a few at a time."""
    kind = TENSOR_TYPES[tensor.kind]
    blocks = numpy.memmap(file, numpy.uint8, "r", tensor.start, (tensor.size // kind.size, kind.size))
    step = _AT_ONCE // kind.elements
    for start in range(0, len(blocks), step):
        yield DEQUANTISERS[kind.name](numpy.array(blocks[start : start + step]))


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Scalar) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value % 2**32)  # the only width that GenAI expects
        case float():
            return struct.pack("<If", 6, value)
        case _:
            return struct.pack("<I", 8) + _text(value)
