"""GGUF files with random weights in Q4_0 and the shape of a larger model, which are as fast as real weights.

The tokenizer and the chat template are those of the default model: the beginning of its file is copied, and the numbers
that describe its shape are replaced.
"""

import struct
from pathlib import Path
from typing import NamedTuple

import numpy

from worker.model.cache import user_cache
from worker.model.local import default_model

_F32, _Q4_0, _Q4_0_FILE = 0, 2, 2
_GROUP, _BLOCK = 32, 18
"""Elements and bytes of a block of Q4_0: an f16 scale, and 4 bits for each element."""
_ALIGNMENT = 32
_START = 24
"""Bytes before the metadata: magic, version, and the numbers of tensors and of pairs."""
_SCALE = 0.004
"""With it, the values of a layer neither vanish nor overflow."""
_PART = 1 << 16
"""Blocks that are drawn; larger tensors repeat them, each from another one on, because equal tensors share memory."""


class Shape(NamedTuple):
    """The shape of a Llama."""

    layers: int
    width: int
    inner: int
    heads: int
    key_value_heads: int


SHAPES = {"1.1B": Shape(16, 2048, 8192, 32, 8), "3B": Shape(28, 3072, 8192, 24, 8)}


def random_model(size: str) -> Path:
    """Return the GGUF file of a size in :data:`SHAPES` from the user's cache, making it if necessary."""
    file = user_cache() / "bench" / f"random-{size}-Q4_0.gguf"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".part")
        _write(unfinished, SHAPES[size])
        unfinished.rename(file)
    return file


def _write(file: Path, shape: Shape) -> None:
    original = default_model().read_bytes()
    end = min(at for name in ("token_embd.weight", "blk.0.attn_norm.weight") if (at := original.find(_text(name))) > 0)
    pairs = bytearray(original[_START:end])
    for name, value in (
        ("general.file_type", _Q4_0_FILE),
        ("llama.block_count", shape.layers),
        ("llama.embedding_length", shape.width),
        ("llama.feed_forward_length", shape.inner),
        ("llama.attention.head_count", shape.heads),
        ("llama.attention.head_count_kv", shape.key_value_heads),
        ("llama.rope.dimension_count", shape.width // shape.heads),
    ):
        # After the key come the type of the value, and the value in four bytes.
        struct.pack_into("<I", pairs, pairs.index(_text(name)) + 8 + len(name) + 4, value)
    vocabulary = struct.unpack_from("<I", pairs, pairs.index(_text("llama.vocab_size")) + 8 + 16 + 4)[0]
    tensors = _tensors(shape, vocabulary)
    described, size = b"", 0
    for name, sides in tensors.items():
        kind = _F32 if len(sides) == 1 else _Q4_0
        described += _text(name) + struct.pack(f"<I{len(sides)}QIQ", len(sides), *reversed(sides), kind, size)
        size += _aligned(_bytes(sides))
    (pair_count,) = struct.unpack_from("<Q", original, 16)
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), pair_count) + pairs + described
    blocks = _random_blocks()
    with file.open("wb") as output:
        output.write(header.ljust(_aligned(len(header)), b"\0"))
        for at, sides in enumerate(tensors.values()):
            length, start = _bytes(sides), at * _BLOCK
            data = (
                numpy.ones(sides, numpy.float32).tobytes()
                if len(sides) == 1
                else (blocks * (-(-(start + length) // len(blocks))))[start : start + length]
            )
            output.write(data.ljust(_aligned(length), b"\0"))


def _tensors(shape: Shape, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Return the sides of each tensor, rows first."""
    width, inner = shape.width, shape.inner
    shared = width // shape.heads * shape.key_value_heads
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, width), "output_norm.weight": (width,)}
    for layer in range(shape.layers):
        sides = {
            "attn_norm": (width,), "ffn_norm": (width,),
            "attn_q": (width, width), "attn_k": (shared, width), "attn_v": (shared, width),
            "attn_output": (width, width),
            "ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner),
        }  # fmt: skip
        tensors |= {f"blk.{layer}.{name}.weight": side for name, side in sides.items()}
    return tensors


def _random_blocks() -> bytes:
    dice = numpy.random.default_rng(1)
    blocks = numpy.zeros(_PART, numpy.dtype([("scale", "<f2"), ("quants", "u1", _GROUP // 2)]))
    blocks["scale"] = _SCALE
    blocks["quants"] = dice.integers(0, 256, (_PART, _GROUP // 2))
    return blocks.tobytes()


def _bytes(sides: tuple[int, ...]) -> int:
    return sides[0] * 4 if len(sides) == 1 else sides[0] * sides[1] // _GROUP * _BLOCK


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
