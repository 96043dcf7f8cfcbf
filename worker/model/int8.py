"""Int8 weights with one scale per row, the fastest format on CPUs with dynamic quantisation.

Weights are unpacked to f16, products that share an input are merged, and each row is quantised. A row holds all weights
of one output; its scale maps the largest absolute weight to 127, and there is no zero point.

Dynamic quantisation quantises activations to int8 at run time, to use int8 instructions. OpenVINO's CPU device does
this only with f32 inference precision, and only if the activation group size divides the weight group size. On
processors with AMX the default would be bf16, which has 0.5 to 0.7 of the speed for few rows. Processors with bf16 but
without AMX get bf16: it is as fast for few rows there, and prefill takes 0.7 to 0.9 of the time (docs/performance.md).
"""

import math
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy
import openvino
from numpy.typing import NDArray
from openvino import opset13 as opset

from worker.model.devices import AVX512_BF16
from worker.model.export import MODEL_FILES, cached_form, export_gguf
from worker.model.files import Properties, write_properties
from worker.model.source import ModelError

_SMALL = 64
"""Size in bytes up to which a constant is an operation's parameter rather than a weight."""

_AT_ONCE = 1 << 26
"""Number of weights unpacked per batch: 256 MB in f32."""

_PACKED = frozenset({"u1", "u2", "u3", "u4", "u6", "u8", "i4", "i8", "nf4", "f4e2m1", "f8e4m3", "f8e5m2", "f8e8m0"})
_PLAIN = frozenset({"bf16", "f16", "f32"})
_DECOMPRESSION = frozenset({"Constant", "Convert", "Subtract", "Multiply", "Reshape", "Transpose"})
"""The operations between packed weights and the operation that uses them."""


class DamagedModel(ModelError):
    """A model has weights that are not finite, so it can't be served."""


def compress(model: openvino.Model) -> tuple[openvino.Model, Properties]:
    """Return ``model`` with int8 weights, a scale for each row, and the best properties for each kind of CPU.

    ``model`` is modified. Empty properties mean OpenVINO's defaults. Raises :class:`DamagedModel` if a weight is not
    finite.
    """
    _unpack(model)
    _check_finite(model)
    merge_products(model)
    properties = fast_properties(factor_lengths(model))
    quantise_rows(model)
    return model, properties


def _check_finite(model: openvino.Model) -> None:
    """Raise :class:`DamagedModel` if a weight is NaN or infinite, as in a file with an incomplete download.

    Constants of only 0 and -inf are attention masks and allowed.
    """
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or node.get_output_element_type(0).get_type_name() not in _PLAIN:
            continue
        values = node.get_data(dtype=numpy.float32)
        if numpy.isfinite(values).all() or bool(numpy.isin(values, (0, -numpy.inf)).all()):
            continue
        raise DamagedModel(
            f"The model is damaged: its tensor '{node.get_friendly_name()}' has values that are not finite (NaN or "
            "infinite). Download or export the model again."
        )


def _unpack(model: openvino.Model) -> None:
    """Replace weights that are already compressed by f16 values."""
    packed: dict[str, openvino.Node] = {}
    for user in model.get_ordered_ops():
        if user.get_type_name() in _DECOMPRESSION:
            continue
        nodes = (port.get_source_output().get_node() for port in user.inputs())
        packed |= {node.get_name(): node for node in nodes if _is_packed_weight(node)}
    waiting: list[openvino.Node] = []
    size = 0
    for node in packed.values():
        waiting.append(node)
        size += math.prod(node.shape)
        # Each compilation takes at least 30 ms, so weights are unpacked in batches.
        if size > _AT_ONCE:
            _unpack_all(waiting)
            waiting, size = [], 0
    _unpack_all(waiting)
    model.validate_nodes_and_infer_types()


def _unpack_all(nodes: Sequence[openvino.Node]) -> None:
    """Evaluate ``nodes``, which depend on constants only, and replace them by constants."""
    if not nodes:
        return
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    values = openvino.Core().compile_model(openvino.Model(list(nodes), []), "CPU", exact)([])
    for at, node in enumerate(nodes):
        plain = opset.constant(values[at].astype(numpy.float16))
        plain.set_friendly_name(f"{node.get_friendly_name()}/unpacked")
        converted = opset.convert(plain, node.get_output_element_type(0).get_type_name())
        converted.set_friendly_name(node.get_friendly_name())
        for target in node.output(0).get_target_inputs():
            if target.get_node().get_type_name() != "Result":
                target.replace_source_output(converted.output(0))


def _is_packed_weight(node: openvino.Node) -> bool:
    """Whether ``node`` outputs floats that it computes only from constants, some of them compressed weights."""
    if not node.get_output_element_type(0).is_real():
        return False
    packed = False
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.get_type_name() not in _DECOMPRESSION:
            return False
        if node.get_type_name() == "Constant":
            size = node.get_byte_size()
            packed = packed or (node.get_output_element_type(0).get_type_name() in _PACKED and size > _SMALL)
        waiting += [port.get_source_output().get_node() for port in node.inputs()]
    return packed


def quantise_rows(model: openvino.Model) -> None:
    """Quantise the matrices and embedding tables of ``model`` to int8. They must not be compressed yet."""
    done: dict[tuple[str, int], openvino.Node] = {}
    for _, port, matrix, axis in weights_of(model):
        key = (matrix.get_name(), axis)
        if key not in done:
            done[key] = _packed(matrix, axis, port.get_source_output().get_node())
        port.replace_source_output(done[key].output(0))
    model.validate_nodes_and_infer_types()


def _packed(matrix: openvino.Node, axis: int, replaced: openvino.Node) -> openvino.Node:
    """Return ``matrix`` in int8 with the decompression operations that OpenVINO recognises as compressed weights."""
    values: NDArray[numpy.float32] = matrix.data.astype(numpy.float32)
    largest = numpy.abs(values).max(axis=axis, keepdims=True)
    scale = (largest / 127).astype(numpy.float16)
    scale[scale == 0] = 1
    packed = numpy.rint(values / scale).clip(-127, 127).astype(numpy.int8)
    whole = opset.constant(packed)
    whole.set_friendly_name(f"{matrix.get_friendly_name()}/int8")
    unpacked = opset.multiply(opset.convert(whole, "f16"), opset.constant(scale))
    node: openvino.Node = opset.convert(unpacked, replaced.get_output_element_type(0).get_type_name())
    node.set_friendly_name(f"{replaced.get_friendly_name()}/unpacked")
    return node


_SMALLEST = 1 << 12
"""Minimum number of elements; smaller matrices are not worth optimising."""


def matrix_of(port: openvino.Input) -> openvino.Node | None:
    """Return the float constant that an input reads as a matrix, directly or through a Convert; else ``None``."""
    node = port.get_source_output().get_node()
    constant = node.input_value(0).get_node() if node.get_type_name() == "Convert" else node
    if constant.get_type_name() != "Constant" or not constant.get_output_element_type(0).is_real():
        return None
    return constant if len(constant.shape) == 2 and math.prod(constant.shape) >= _SMALLEST else None


def weights_of(model: openvino.Model) -> Iterator[tuple[openvino.Node, openvino.Input, openvino.Node, int]]:
    """Yield the weight matrices of ``model``: the operation, its input, the matrix, and the axis along which rows lie.

    A row holds all weights of one output, or of one entry of an embedding table. The caller may replace the sources of
    the inputs during the iteration.
    """
    for user in model.get_ordered_ops():
        for at, port in enumerate(user.inputs()):
            axis, matrix = _row_axis(user, at), matrix_of(port)
            if axis is not None and matrix is not None:
                yield user, port, matrix, axis


def factor_lengths(model: openvino.Model) -> Iterator[int]:
    """Return the row lengths of the matrices that ``model`` multiplies by. They must not be compressed yet."""
    return (matrix.shape[axis] for user, _, matrix, axis in weights_of(model) if user.get_type_name() == "MatMul")


def _row_axis(user: openvino.Node, at: int) -> int | None:
    """Return the axis along which the rows of input ``at`` of ``user`` lie; ``None`` if it takes no weights."""
    match user.get_type_name(), at:
        case "MatMul", 1:
            return 1 if user.get_attributes()["transpose_b"] else 0
        case "Gather", 0:
            return 1
    return None


_ROWS = {"transpose_a": False, "transpose_b": True}


def merge_products(model: openvino.Model) -> None:
    """Merge the products in ``model`` that share an input and have uncompressed matrices with one row per output.

    Each product has a fixed cost independent of its size. Attention multiplies its input by three matrices, a gated
    layer by two. The concatenation of their rows is one matrix, whose product is split again.
    """
    by_input: dict[tuple[str, int], list[tuple[openvino.Node, openvino.Node]]] = defaultdict(list)
    for node in model.get_ordered_ops():
        if node.get_type_name() != "MatMul" or node.get_attributes() != _ROWS:
            continue
        if (matrix := matrix_of(node.input(1))) is not None:
            source = node.input_value(0)
            by_input[source.get_node().get_name(), source.get_index()].append((node, matrix))
    for found in by_input.values():
        if len(found) > 1:
            _merge(*zip(*found, strict=True))
    model.validate_nodes_and_infer_types()


def _merge(products: Sequence[openvino.Node], matrices: Sequence[openvino.Node]) -> None:
    """Replace ``products``, which multiply the same input by one of ``matrices`` each, with one product."""
    combined = opset.constant(numpy.concatenate([matrix.data for matrix in matrices]))
    combined.set_friendly_name("+".join(matrix.get_friendly_name() for matrix in matrices))
    first = products[0]
    weights = opset.convert(combined, first.input_value(1).get_element_type().get_type_name())
    merged = opset.matmul(first.input_value(0), weights, False, True)
    merged.set_friendly_name("+".join(product.get_friendly_name() for product in products))
    lengths = numpy.array([matrix.shape[0] for matrix in matrices], numpy.int64)
    parts = opset.variadic_split(merged, opset.constant(numpy.int64(-1)), opset.constant(lengths))
    for index, product in enumerate(products):
        for target in product.output(0).get_target_inputs():
            target.replace_source_output(parts.output(index))


_LEAST, _MOST, _STEP = 32, 128, 16
"""Range of activation group sizes: smaller groups are slower, larger ones less accurate. Kernels need a step of 16."""


def fast_properties(lengths: Iterable[int]) -> Properties:
    """Return the properties for a model whose weight groups, including whole rows, have ``lengths``.

    They are empty if no activation group size divides all of them.
    """
    common = math.gcd(*lengths)
    group = max((size for size in range(_LEAST, _MOST + 1, _STEP) if common and common % size == 0), default=0)
    if not group:
        return {}
    return {
        "CPU": {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": group},
        AVX512_BF16: {"INFERENCE_PRECISION_HINT": "bf16"},
    }


_VERSION = "3"
"""Format version of cache entries. Change it when conversions produce other weights or properties."""


def remake(original: Path, scratch: Path) -> Path:
    """Return a new IR folder in ``scratch`` that equals ``original`` except for its weights and properties.

    Raises :class:`~worker.model.source.ModelError` if the weights can't be compressed, and :class:`OSError` if files
    can't be written.
    """
    result = scratch / "result"
    result.mkdir()
    for file in original.iterdir():
        if file.name not in MODEL_FILES and file.suffix != ".gguf":
            shutil.copyfile(file, result / file.name)
    model, properties = compress(openvino.Core().read_model(original / MODEL_FILES[0]))
    openvino.save_model(model, result / MODEL_FILES[0], compress_to_fp16=False)
    write_properties(result, properties)
    return result


def int8_folder(path: Path, context_length: int, progress: Callable[[str], None]) -> Path:
    """Return the cached IR folder with int8 weights of the GGUF file at ``path``, converting it if necessary.

    ``context_length`` is stated in the folder's configuration. Raises :class:`DamagedModel` if the file has tensors
    that are not finite, and :class:`ModelError`, :class:`OSError` or :class:`RuntimeError` (from OpenVINO) if the
    conversion fails.
    """

    def make(scratch: Path) -> Path:
        progress(f"making int8 weights of {path.name}, once")
        return remake(export_gguf(path, context_length, scratch), scratch)

    return cached_form("int8", path, (str(context_length), _VERSION), make)
