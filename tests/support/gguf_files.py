"""Makes tiny GGUF files."""

import struct
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import numpy

from worker.model.gguf import TENSOR_TYPES


class U16(int):
    """An integer of 16 bits."""


Value = int | float | bool | str | list[str] | list[int] | list[float]
Shape = int | tuple[int, int]
"""Number of elements of a vector, or rows and columns of a matrix."""

_F32 = 0
_ALIGNMENT = 32
_SCALES = {
    "Q4_0": ((0, 0.01),), "Q4_1": ((0, 0.02), (2, -0.15)), "Q5_0": ((0, 0.006),), "Q5_1": ((0, 0.01), (2, -0.16)),
    "Q8_0": ((0, 0.001),), "Q2_K": ((80, 0.007), (82, 0.01)), "Q3_K": ((108, 0.001),),
    "Q4_K": ((0, 0.0004), (2, 0.003)),
    "Q5_K": ((0, 0.0002), (2, 0.003)), "Q6_K": ((208, 5e-5),), "IQ4_NL": ((0, 0.001),), "IQ4_XS": ((0, 5e-5),),
    "MXFP4": (), "F32": (), "F16": (), "BF16": (),
}  # fmt: skip
"""Where blocks of each type have f16 numbers, in bytes, and ones that make weights of ordinary sizes."""


_NUMBERS = {known.name: number for number, known in TENSOR_TYPES.items()}


def gguf_bytes(
    metadata: Mapping[str, Value],
    *,
    version: int = 3,
    tensors: Mapping[str, Shape] | None = None,
    kind: str | Sequence[str] = "Q4_1",
    vectors: Mapping[str, Sequence[float]] | None = None,
) -> bytes:
    """Return a GGUF file that holds ``metadata``: ints as u32, floats as f32, lists as arrays.

    Of ``tensors``, a vector becomes ones in f32, and a matrix random weights of type ``kind``, or of the next of
    several types in turns; those in ``vectors`` have these weights, in f32.
    """
    tensors, kinds = tensors or {}, cycle([kind] if isinstance(kind, str) else kind)
    pairs = b"".join(_text(key) + _value(value) for key, value in metadata.items())
    described, contents = b"", b""
    for name, shape in tensors.items():
        described += _text(name)
        own = (vectors or {}).get(name)
        if isinstance(shape, int):
            described += struct.pack("<IQIQ", 1, shape, _F32, len(contents))
            data = numpy.array([1.0] * shape if own is None else own, numpy.float32).tobytes()
        else:
            (rows, columns), one = shape, next(kinds)
            described += struct.pack("<IQQIQ", 2, columns, rows, _NUMBERS[one], len(contents))
            blocks = rows * columns // TENSOR_TYPES[_NUMBERS[one]].elements
            data = random_blocks(one, blocks) if own is None else numpy.array(own, numpy.float32).tobytes()
        contents += data.ljust(_aligned(len(data)), b"\0")
    header = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata)) + pairs + described
    return header.ljust(_aligned(len(header)), b"\0") + contents if tensors else header


def tiny_llama(
    *,
    layers: int = 1,
    width: int = 64,
    metadata: Mapping[str, Value] | None = None,
    tensors: Mapping[str, Shape] | None = None,
    kind: str | Sequence[str] = "Q4_1",
    vectors: Mapping[str, Sequence[float]] | None = None,
    specials: Sequence[str] = (),
) -> bytes:
    """A Llama with random weights and a byte-level vocabulary, which writes noise.

    ``specials`` are more special tokens.
    ``metadata`` and ``tensors`` are added to its own; ``kind`` and ``vectors`` are as in :func:`gguf_bytes`.
    """
    (whole,) = llama_parts(
        1,
        layers=layers,
        width=width,
        more=metadata,
        more_tensors=tensors,
        kind=kind,
        vectors=vectors,
        specials=specials,
    )
    return whole


def split_llama(folder: Path, name: str, parts: int) -> list[Path]:
    """Write the same model split into ``parts`` files, as llama.cpp's gguf-split does; return them."""
    files = [folder / f"{name}-{number:05}-of-{parts:05}.gguf" for number in range(1, parts + 1)]
    for file, content in zip(files, llama_parts(parts), strict=True):
        file.write_bytes(content)
    return files


def llama_parts(
    parts: int,
    *,
    layers: int = 1,
    width: int = 64,
    more: Mapping[str, Value] | None = None,
    more_tensors: Mapping[str, Shape] | None = None,
    kind: str | Sequence[str] = "Q4_1",
    vectors: Mapping[str, Sequence[float]] | None = None,
    specials: Sequence[str] = (),
) -> list[bytes]:
    """The files of a Llama that is split: the first one has its metadata, each has some of its tensors."""
    letters = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in letters]
    # GPT-2's alphabet: a printable character for each byte.
    alphabet = [chr(byte) for byte in letters] + [chr(256 + number) for number in range(len(others))]
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *specials]
    tokens = [*specials, *alphabet, "th", "the"]
    inner = 2 * width
    matrices = {
        "attn_q": (width, width), "attn_k": (width, width), "attn_v": (width, width), "attn_output": (width, width),
        "ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner),
    }  # fmt: skip
    tensors: dict[str, Shape] = {"token_embd.weight": (len(tokens), width), "output_norm.weight": width}
    for layer in range(layers):
        tensors |= {f"blk.{layer}.{name}.weight": width for name in ("attn_norm", "ffn_norm")}
        tensors |= {f"blk.{layer}.{name}.weight": shape for name, shape in matrices.items()}
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "general.file_type": 3,
        "llama.block_count": layers,
        "llama.context_length": 2048,
        "llama.embedding_length": width,
        "llama.feed_forward_length": inner,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 2,
        "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": len(tokens),
        "llama.rope.dimension_count": width // 2,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(specials) + [1] * (len(tokens) - len(specials)),
        "tokenizer.ggml.merges": ["t h", "th e"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}",
    }
    metadata |= more or {}
    tensors |= more_tensors or {}
    if parts == 1:
        return [gguf_bytes(metadata, tensors=tensors, kind=kind, vectors=vectors)]
    names = [*tensors]
    shares = [{name: tensors[name] for name in names[number::parts]} for number in range(parts)]
    return [
        gguf_bytes(
            (metadata if number == 0 else {})
            | {"split.no": U16(number), "split.count": U16(parts), "split.tensors.count": len(tensors)},
            tensors=share,
        )
        for number, share in enumerate(shares)
    ]


def random_blocks(kind: str, blocks: int) -> bytes:
    """Blocks of a type of tensor with random weights of ordinary sizes."""
    random, size = numpy.random.default_rng(blocks), TENSOR_TYPES[_NUMBERS[kind]].size
    if not _SCALES[kind] and kind != "MXFP4":
        values = random.normal(0, 0.08, blocks).astype(numpy.float16 if kind == "F16" else numpy.float32)
        return (values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes() if kind == "BF16" else values.tobytes()
    data = random.integers(0, 256, (blocks, size), numpy.uint8)
    if kind == "MXFP4":
        data[:, 0] = 122  # a scale of 2 ** -6
    for at, number in _SCALES[kind]:
        data[:, at : at + 2] = numpy.array([number], numpy.float16).view(numpy.uint8)
    return data.tobytes()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case U16():
            return struct.pack("<IH", 2, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case [float(), *_]:
            return struct.pack("<IIQ", 9, 6, len(value)) + struct.pack(f"<{len(value)}f", *value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(_text(str(item)) for item in value)
        case _:
            return struct.pack("<IIQ", 9, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)
