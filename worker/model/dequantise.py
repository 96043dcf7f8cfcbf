"""Unpacks the tensor types of GGUF files to f32 (layouts: https://github.com/ggml-org/ggml, src/ggml-common.h).

A block is a run of adjacent elements with scales of its own. Each function takes blocks as bytes [blocks, bytes], and
returns their values [blocks, elements].
"""

from collections.abc import Callable

import numpy
from numpy.typing import NDArray

Bytes = NDArray[numpy.uint8]
Values = NDArray[numpy.float32]


def _halves(blocks: Bytes, at: int, count: int = 1) -> Values:
    """Return the ``count`` f16 numbers at byte ``at`` of each block."""
    return blocks[:, at : at + 2 * count].copy().view("<f2").astype(numpy.float32)


def _fields(data: Bytes, bits: int, run: int) -> Bytes:
    """Return fields of ``bits`` each. Of every ``run`` bytes, first all lowest fields, then the next ones."""
    runs = data.reshape(len(data), -1, 1, run)
    shifts = numpy.arange(0, 8, bits, dtype=numpy.uint8).reshape(-1, 1)
    fields: Bytes = runs >> shifts & numpy.uint8((1 << bits) - 1)
    return fields.reshape(len(data), -1)


def _scaled(values: NDArray[numpy.generic], scales: Values, minima: Values | None = None) -> Values:
    """Multiply the groups of each block by ``scales`` [blocks, groups], and subtract their ``minima``."""
    groups = values.astype(numpy.float32).reshape(*scales.shape, -1) * scales[:, :, None]
    if minima is not None:
        groups -= minima[:, :, None]
    return groups.reshape(len(values), -1)


def bf16(blocks: Bytes) -> Values:
    """Return numbers of 16 bits, the upper half of f32."""
    return (blocks.view("<u2").astype(numpy.uint32) << 16).view(numpy.float32)


def _q4_0(blocks: Bytes) -> Values:
    return _scaled(_fields(blocks[:, 2:], 4, 16).astype(numpy.int8) - 8, _halves(blocks, 0))


def _q4_1(blocks: Bytes) -> Values:
    return _scaled(_fields(blocks[:, 4:], 4, 16), _halves(blocks, 0), -_halves(blocks, 2))


def _fifth_bits(data: Bytes) -> Bytes:
    bits: Bytes = numpy.unpackbits(data, axis=1, bitorder="little") << numpy.uint8(4)
    return bits


def _q5_0(blocks: Bytes) -> Values:
    packed = _fields(blocks[:, 6:], 4, 16) | _fifth_bits(blocks[:, 2:6])
    return _scaled(packed.astype(numpy.int8) - 16, _halves(blocks, 0))


def _q5_1(blocks: Bytes) -> Values:
    packed = _fields(blocks[:, 8:], 4, 16) | _fifth_bits(blocks[:, 4:8])
    return _scaled(packed, _halves(blocks, 0), -_halves(blocks, 2))


def _q8_0(blocks: Bytes) -> Values:
    return _scaled(blocks[:, 2:].view(numpy.int8), _halves(blocks, 0))


def _q2_k(blocks: Bytes) -> Values:
    scales, minima = blocks[:, :16] & 15, blocks[:, :16] >> 4
    return _scaled(_fields(blocks[:, 16:80], 2, 32), _halves(blocks, 80) * scales, _halves(blocks, 82) * minima)


def _q3_k(blocks: Bytes) -> Values:
    low, high = _fields(blocks[:, 96:104], 4, 8), _fields(blocks[:, 104:108], 2, 4)
    scales = (low | high << 4).astype(numpy.int8) - 32
    packed = _fields(blocks[:, 32:96], 2, 32) | _fields(blocks[:, :32], 1, 32) << 2
    return _scaled(packed.astype(numpy.int8) - 4, _halves(blocks, 108) * scales)


def _scales_and_minima(blocks: Bytes) -> tuple[Values, Values]:
    """Return those of the 8 groups of Q4_K and Q5_K: two f16, and 12 bytes with 6 bits for each."""
    first, second, last = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = numpy.hstack((first & 63, last & 15 | first >> 6 << 4))
    minima = numpy.hstack((second & 63, last >> 4 | second >> 6 << 4))
    return _halves(blocks, 0) * scales, _halves(blocks, 2) * minima


def _q4_k(blocks: Bytes) -> Values:
    return _scaled(_fields(blocks[:, 16:], 4, 32), *_scales_and_minima(blocks))


def _q5_k(blocks: Bytes) -> Values:
    packed = _fields(blocks[:, 48:], 4, 32) | _fields(blocks[:, 16:48], 1, 32) << 4
    return _scaled(packed, *_scales_and_minima(blocks))


def _q6_k(blocks: Bytes) -> Values:
    packed = _fields(blocks[:, :128], 4, 64) | _fields(blocks[:, 128:192], 2, 32) << 4
    scales = blocks[:, 192:208].view(numpy.int8)
    return _scaled(packed.astype(numpy.int8) - 32, _halves(blocks, 208) * scales)


_IQ4 = numpy.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], numpy.int8)


def _iq4_nl(blocks: Bytes) -> Values:
    return _scaled(_IQ4[_fields(blocks[:, 2:], 4, 16)], _halves(blocks, 0))


def _iq4_xs(blocks: Bytes) -> Values:
    # One byte after the other, each with its lowest field first.
    high, low = _fields(blocks[:, 2:4], 2, 1), _fields(blocks[:, 4:8], 4, 1)
    scales = (low | high << 4).astype(numpy.int8) - 32
    return _scaled(_IQ4[_fields(blocks[:, 8:], 4, 16)], _halves(blocks, 0) * scales)


_FP4 = numpy.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], numpy.int8)
"""Twice the values of FP4 (E2M1)."""


def _mxfp4(blocks: Bytes) -> Values:
    scales = numpy.ldexp(numpy.float32(1), blocks[:, :1].astype(numpy.int32) - 128)
    return _scaled(_FP4[_fields(blocks[:, 1:], 4, 16)], scales)


DEQUANTISERS: dict[str, Callable[[Bytes], Values]] = {
    "F32": lambda blocks: blocks.view("<f4"),
    "F16": lambda blocks: blocks.view("<f2").astype(numpy.float32),
    "BF16": bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
}
"""The functions by the name of the type in llama.cpp."""
