"""Tensor types are unpacked to the same values as by llama.cpp's own Python package."""

import gguf
import numpy
import pytest

from worker.model.dequantise import DEQUANTISERS
from worker.model.gguf import TENSOR_TYPES
from worker.model.header import TYPES


def test_the_types_that_are_served_are_those_that_are_unpacked() -> None:
    assert set(TYPES) == set(DEQUANTISERS)


@pytest.mark.parametrize("name", DEQUANTISERS)
def test_a_type_is_unpacked_value_by_value(name: str) -> None:
    """Random bytes have every scale: negative ones, those below the normal range, infinity and NaN."""
    kind = gguf.GGMLQuantizationType[name]
    known = TENSOR_TYPES[kind]
    assert gguf.GGML_QUANT_SIZES[kind] == (known.elements, known.size)
    blocks = numpy.random.default_rng(1).integers(0, 256, (500, known.size), numpy.uint8)
    with numpy.errstate(all="ignore"):
        values, expected = DEQUANTISERS[name](blocks), gguf.dequantize(blocks, kind)
    assert numpy.array_equal(values.reshape(-1), expected.reshape(-1), equal_nan=True)
