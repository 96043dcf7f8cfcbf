"""int8 weights: packed weights keep their values, and a damaged model is refused."""

import numpy
import openvino
import pytest
from numpy.typing import NDArray
from openvino import opset13 as opset

from worker.openvino import int8
from worker.openvino.int8 import DamagedModel, compress, fast_properties


def _grouped(
    rng: numpy.random.Generator, rows: int, groups: int, size: int, *, first_scale: float | None = None
) -> tuple[openvino.Node, NDArray[numpy.float32]]:
    """Weights as GGUF's and NNCF's int4 formats pack them, and their values."""
    packed = rng.integers(0, 16, (rows, groups, size))
    zero = rng.integers(0, 16, (rows, groups, 1))
    scale = rng.uniform(0.01, 0.1, (rows, groups, 1)).astype(numpy.float16)
    if first_scale is not None:
        scale[0, 0, 0] = first_scale

    def u4(values: NDArray[numpy.int64]) -> openvino.Node:
        constant = openvino.op.Constant(openvino.Type.u4, openvino.Shape(values.shape), values.flatten().tolist())
        return opset.convert(constant, "f16")

    node = opset.multiply(opset.subtract(u4(packed), u4(zero)), opset.constant(scale))
    node = opset.convert(opset.reshape(node, [rows, groups * size], special_zero=False), "f32")
    with numpy.errstate(invalid="ignore"):
        values = ((packed - zero) * scale.astype(numpy.float32)).reshape(rows, -1)
    return node, values.astype(numpy.float32)


def _constant_types(model: openvino.Model) -> set[str]:
    nodes = [node for node in model.get_ops() if node.get_type_name() == "Constant"]
    return {node.get_output_element_type(0).get_type_name() for node in nodes if node.get_byte_size() > 64}


def test_packed_weights_are_unpacked_to_their_values() -> None:
    node, values = _grouped(numpy.random.default_rng(2), 48, 3, 32)
    ids = opset.parameter([-1], openvino.Type.i64)
    # One table as embedding and last layer, as models with tied embeddings have it.
    embedded = opset.gather(node, ids, 0)
    model = openvino.Model([opset.matmul(embedded, node, False, True)], [ids])
    assert "u4" in _constant_types(model)
    compressed, _ = compress(model)
    assert "u4" not in _constant_types(compressed)
    rows = numpy.array([3, 0, 47])
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    (found,) = openvino.Core().compile_model(compressed, "CPU", exact)([rows]).values()
    expected = values[rows] @ values.T
    assert numpy.abs(found - expected).max() < 0.02 * numpy.abs(expected).max()


@pytest.mark.parametrize("value", [numpy.nan, numpy.inf, -numpy.inf])
@pytest.mark.parametrize("packed", [True, False])
def test_weights_that_are_not_finite_are_refused(value: float, packed: bool) -> None:
    data = opset.parameter([-1, 96], openvino.Type.f32)
    if packed:
        node, _ = _grouped(numpy.random.default_rng(2), 24, 3, 32, first_scale=value)
    else:
        node = opset.constant(numpy.array([[value, *range(95)]] * 24, numpy.float32))
    model = openvino.Model([opset.matmul(data, node, False, True)], [data])
    with pytest.raises(DamagedModel, match="values that are not finite"):
        compress(model)


def test_an_attention_mask_may_be_infinite() -> None:
    data = opset.parameter([-1, 96], openvino.Type.f32)
    mask = opset.constant(numpy.triu(numpy.full((96, 96), -numpy.inf, numpy.float32), 1))
    compress(openvino.Model([opset.add(data, mask)], [data]))


@pytest.mark.parametrize("transposed", [True, False])
def test_int8_rows_are_close_to_their_values(transposed: bool) -> None:
    rng = numpy.random.default_rng(4)
    # Rows of very different sizes: a scale that were shared would lose the small ones.
    values = (rng.normal(size=(96, 192)) * numpy.logspace(-2, 2, 96)[:, None]).astype(numpy.float32)
    values[5] = 0
    data = opset.parameter([-1, 192], openvino.Type.f32)
    weights = opset.constant(values if transposed else values.T.copy())
    model = openvino.Model([opset.matmul(data, weights, False, transposed)], [data])
    packed, properties = compress(model)
    assert _constant_types(packed) == {"i8", "f16"}
    assert properties == {
        "CPU": {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 96},
        "CPU avx512_bf16": {"INFERENCE_PRECISION_HINT": "bf16"},
    }
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    (found,) = openvino.Core().compile_model(packed, "CPU", exact)([numpy.eye(192, dtype=numpy.float32)]).values()
    off = numpy.abs(found.T - values).max(axis=1)
    assert (off <= numpy.abs(values).max(axis=1) / 127 * 0.56).all()


@pytest.mark.parametrize("at_once", [1, 1 << 26], ids=["each in a batch of its own", "all at once"])
def test_products_of_one_input_become_one(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "_AT_ONCE", at_once)
    monkeypatch.setattr(int8, "_BLOCK", 1000)  # a matrix is quantised in several
    rng = numpy.random.default_rng(5)
    data = opset.parameter([-1, 64], openvino.Type.f32)
    matrices = [rng.normal(size=(rows, 64)).astype(numpy.float32) for rows in (96, 64, 160)]
    products = [opset.matmul(data, opset.constant(matrix), False, True) for matrix in matrices]
    other = opset.matmul(products[0], opset.constant(matrices[0].T.copy()), False, True)
    model, _ = compress(openvino.Model([*products, other], [data]))
    assert sum(node.get_type_name() == "MatMul" for node in model.get_ops()) == 2
    assert _constant_types(model) == {"i8", "f16"}
    rows = rng.normal(size=(3, 64)).astype(numpy.float32)
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    found = openvino.Core().compile_model(model, "CPU", exact)([rows])
    expected = [rows @ matrix.T for matrix in matrices]
    for at, one in enumerate([*expected, expected[0] @ matrices[0]]):
        assert numpy.abs(found[at] - one).max() < 0.02 * numpy.abs(one).max()


@pytest.mark.parametrize(
    ("lengths", "group"),
    [
        ((576, 1536), 96),
        ((2048, 5632), 128),
        ((896, 4864), 128),
        ((576, 1536, 32), 32),
        ((4096, 64), 64),
        ((600, 1200), None),  # 40, 60 and 120 divide them, and are no multiples of 16
        ((40,), None),
        ((), None),
    ],
)
def test_activations_share_a_scale_in_the_largest_groups_that_suit_all_weights(
    lengths: tuple[int, ...], group: int | None
) -> None:
    cpu = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": group}
    bf16 = {"INFERENCE_PRECISION_HINT": "bf16"}
    assert fast_properties(lengths) == ({"CPU": cpu, "CPU avx512_bf16": bf16} if group else {})


def test_equal_small_constants_become_one() -> None:
    data = opset.parameter([-1, 6], openvino.Type.f32)
    shapes = [opset.constant(numpy.array(shape, numpy.int64)) for shape in ([-1, 2, 3], [-1, 2, 3], [-1, 3, 2])]
    exact, rounded = (opset.constant(numpy.array([[2]], kind)) for kind in (numpy.float32, numpy.float16))
    results = [opset.reshape(opset.multiply(data, exact), shape, special_zero=False) for shape in shapes]
    model = openvino.Model([*results, opset.multiply(data, opset.convert(rounded, "f32"))], [data])
    rows = numpy.arange(12, dtype=numpy.float32).reshape(2, 6)
    expected = openvino.Core().compile_model(model, "CPU")([rows]).values()
    int8.share_constants(model)
    assert len([node for node in model.get_ops() if node.get_type_name() == "Constant"]) == 4
    found = openvino.Core().compile_model(model, "CPU")([rows]).values()
    assert all(numpy.array_equal(one, other) for one, other in zip(found, expected, strict=True))
