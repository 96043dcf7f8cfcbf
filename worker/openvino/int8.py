"""Int8 weights with one scale per row, the fastest format on CPUs with dynamic quantisation.

Weights are unpacked, products that share an input are merged, and each row is quantised. A row holds all weights of one
output; its scale maps the largest absolute weight to 127, and there is no zero point.

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
from typing import NamedTuple

import numpy
import openvino
from numpy.typing import NDArray
from openvino import opset13 as opset
from openvino._offline_transformations import apply_moc_transformations

from worker.model.devices import AVX512_BF16
from worker.model.files import Properties, model_bytes, write_properties
from worker.model.source import MAKING_WEIGHTS, ModelError
from worker.openvino.export import MODEL_FILES, cached_form, export_gguf

_AT_ONCE = 1 << 26
"""Number of weights unpacked per batch, unless a matrix alone has more: 256 MB in f32. Each takes at least 30 ms."""

_BLOCK = 1 << 22
"""Number of weights quantised at once, so that they stay in the processor's cache."""

_SMALLEST = 1 << 12
"""Minimum number of elements; smaller matrices are not worth optimising."""

_PLAIN = frozenset({"bf16", "f16", "f32"})
_DECOMPRESSION = frozenset({"Constant", "Convert", "Subtract", "Multiply", "Reshape", "Transpose"})
"""The operations between packed weights and the operation that uses them."""


class DamagedModel(ModelError):
    """A model has weights that are not finite, so it can't be served."""


class WeightMatrix(NamedTuple):
    """A weight matrix where an operation reads it. A row, along ``axis``, holds all weights of one output, or of one
    entry of an embedding table."""

    user: openvino.Node
    port: openvino.Input
    axis: int

    @property
    def source(self) -> openvino.Output:
        """The matrix: a constant, or what packed constants are unpacked to."""
        return self.port.get_source_output()


class Group(NamedTuple):
    """What becomes one int8 matrix: the only one of ``matrices``, in all its ``uses``, or those of merged products."""

    uses: tuple[WeightMatrix, ...]
    matrices: tuple[openvino.Output, ...]

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(math.prod(matrix.get_shape()) for matrix in self.matrices)


def compress(model: openvino.Model) -> tuple[openvino.Model, Properties]:
    """Return ``model`` with int8 weights, a scale for each row, and the best properties for each kind of CPU.

    ``model`` is modified. Only few of its matrices are in memory in another form at a time. Empty properties mean
    OpenVINO's defaults. Raises :class:`DamagedModel` if a weight is not finite.
    """
    weights = list(weights_of(model))
    properties = fast_properties(
        one.source.get_shape()[one.axis] for one in weights if one.user.get_type_name() == "MatMul"
    )
    # The largest first: to unpack an embedding table takes several times what the other weights take in the end.
    for batch in _batches(sorted(groups_of(weights), key=lambda group: group.size, reverse=True)):
        values = _unpacked([matrix for group in batch for matrix in group.matrices])
        for group in batch:
            unpacked = [values[_key(matrix)] for matrix in group.matrices]
            _replace(group, _packed(group, unpacked))
    model.validate_nodes_and_infer_types()
    _check_finite(model)
    return model, properties


def _check_finite(model: openvino.Model) -> None:
    """Raise :class:`DamagedModel` if a value is NaN or infinite, as in a file with an incomplete download.

    A weight that is not finite shows in the scale of its row. Constants of only 0 and -inf are attention masks and
    allowed.
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


def weights_of(model: openvino.Model) -> Iterator[WeightMatrix]:
    """Yield the weight matrices of ``model``, packed or not."""
    for user in model.get_ordered_ops():
        for at, port in enumerate(user.inputs()):
            axis = _row_axis(user, at)
            if axis is not None and _is_matrix(port.get_source_output()):
                yield WeightMatrix(user, port, axis)


def _row_axis(user: openvino.Node, at: int) -> int | None:
    """Return the axis along which the rows of input ``at`` of ``user`` lie; ``None`` if it takes no weights."""
    match user.get_type_name(), at:
        case "MatMul", 1:
            return 1 if user.get_attributes()["transpose_b"] else 0
        case "Gather", 0:
            return 1
    return None


_DIMENSIONS = 2


def _is_matrix(source: openvino.Output) -> bool:
    """Whether ``source`` is a matrix of floats, and is computed only from constants."""
    shape = source.get_partial_shape()
    if not source.get_element_type().is_real() or shape.is_dynamic or len(shape) != _DIMENSIONS:
        return False
    waiting = [source.get_node()]
    while waiting:
        node = waiting.pop()
        if node.get_type_name() not in _DECOMPRESSION:
            return False
        waiting += [port.get_source_output().get_node() for port in node.inputs()]
    return bool(math.prod(source.get_shape()) >= _SMALLEST)


def _key(output: openvino.Output) -> tuple[str, int]:
    return output.get_node().get_name(), output.get_index()


_ROWS = {"transpose_a": False, "transpose_b": True}


def groups_of(weights: Iterable[WeightMatrix]) -> list[Group]:
    """Group the uses of a matrix, and the products that share an input and have a matrix with a row per output.

    Each product has a fixed cost independent of its size. Attention multiplies its input by three matrices, a gated
    layer by two.
    """
    by_input: dict[tuple[str, int], list[WeightMatrix]] = defaultdict(list)
    by_matrix: dict[tuple[tuple[str, int], int], list[WeightMatrix]] = defaultdict(list)
    for one in weights:
        if one.user.get_type_name() == "MatMul" and one.user.get_attributes() == _ROWS:
            by_input[_key(one.user.input_value(0))].append(one)
        else:
            by_matrix[_key(one.source), one.axis].append(one)
    merged = []
    for products in by_input.values():
        if len(products) > 1:
            merged.append(Group(tuple(products), tuple(one.source for one in products)))
        else:
            by_matrix[_key(products[0].source), products[0].axis] += products
    return [*merged, *(Group(tuple(uses), (uses[0].source,)) for uses in by_matrix.values())]


def _batches(groups: Iterable[Group]) -> Iterator[list[Group]]:
    batch: list[Group] = []
    size = 0
    for group in groups:
        if batch and size + group.size > _AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(group)
        size += group.size
    if batch:
        yield batch


def _unpacked(matrices: Sequence[openvino.Output]) -> dict[tuple[str, int], NDArray[numpy.float32]]:
    """Return the values of ``matrices``, which depend on constants only."""
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    results = [opset.result(matrix) for matrix in matrices]
    values = openvino.Core().compile_model(openvino.Model(results, []), "CPU", exact)([])
    return {_key(matrix): values[at] for at, matrix in enumerate(matrices)}


def _packed(group: Group, matrices: Sequence[NDArray[numpy.float32]]) -> openvino.Node:
    """Return the rows of ``matrices`` in int8 with the decompression operations that OpenVINO recognises as compressed
    weights."""
    axis = group.uses[0].axis
    name = "+".join(matrix.get_node().get_friendly_name() for matrix in group.matrices)
    rows = [matrix if axis else matrix.T for matrix in matrices]
    packed = numpy.empty((sum(map(len, rows)), rows[0].shape[1]), numpy.int8)
    scales = numpy.empty((len(packed), 1), numpy.float16)
    done, step = 0, max(1, _BLOCK // packed.shape[1])
    for matrix in rows:
        for start in range(0, len(matrix), step):
            block = matrix[start : start + step]
            at = slice(done + start, done + start + len(block))
            packed[at], scales[at] = _quantised(block)
        done += len(matrix)
    whole, scale = (opset.constant(numpy.ascontiguousarray(one if axis else one.T)) for one in (packed, scales))
    whole.set_friendly_name(f"{name}/int8")
    scale.set_friendly_name(name)
    unpacked = opset.multiply(opset.convert(whole, "f16"), scale)
    node: openvino.Node = opset.convert(unpacked, group.matrices[0].get_element_type().get_type_name())
    node.set_friendly_name(f"{name}/unpacked")
    return node


def _quantised(rows: NDArray[numpy.float32]) -> tuple[NDArray[numpy.int8], NDArray[numpy.float16]]:
    """Return the rows in int8, and their scales. The scale of a row is not finite if one of its weights is not."""
    values = rows.astype(numpy.float16).astype(numpy.float32)  # as far as GGUF's formats define them
    with numpy.errstate(invalid="ignore"):
        scales = (numpy.abs(values).max(axis=1, keepdims=True) / 127).astype(numpy.float16)
        scales[scales == 0] = 1
        values /= scales.astype(numpy.float32)
        return numpy.rint(values, out=values).clip(-127, 127, out=values).astype(numpy.int8), scales


def _replace(group: Group, packed: openvino.Node) -> None:
    """Use ``packed`` in place of the matrices of ``group``. Of merged products, the only one is split again."""
    if len(group.matrices) == 1:
        for use in group.uses:
            use.port.replace_source_output(packed.output(0))
        return
    products = [use.user for use in group.uses]
    merged = opset.matmul(products[0].input_value(0), packed, False, True)
    merged.set_friendly_name("+".join(product.get_friendly_name() for product in products))
    lengths = numpy.array([matrix.get_shape()[0] for matrix in group.matrices], numpy.int64)
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


def share_constants(model: openvino.Model) -> None:
    """Have the users of equal small constants read one of them. An export makes each axis and shape for each layer."""
    first: dict[tuple[object, ...], openvino.Output] = {}
    for node in model.get_ordered_ops():
        if node.get_type_name() == "Constant" and math.prod(node.get_output_shape(0)) < _SMALLEST:
            value = node.get_element_type().get_type_name(), tuple(node.get_output_shape(0)), node.get_data().tobytes()
            for port in node.output(0).get_target_inputs():
                port.replace_source_output(first.setdefault(value, node.output(0)))


_VERSION = "6"
"""Format version of cache entries. Change it when conversions produce other weights or properties."""


def remake(original: Path, scratch: Path) -> Path:
    """Return a new IR folder in ``scratch`` that equals ``original`` except for its weights and properties.

    Raises :class:`~worker.model.source.ModelError` if the weights can't be compressed, and :class:`OSError` if files
    can't be written.
    """
    result = scratch / "result"
    result.mkdir()
    for file in original.iterdir():
        if file.name not in MODEL_FILES:
            shutil.copyfile(file, result / file.name)
    model, properties = compress(openvino.Core().read_model(original / MODEL_FILES[0]))
    # Each load would simplify the graph again: with two fifths fewer nodes, it compiles in two thirds of the time.
    apply_moc_transformations(model, True)
    share_constants(model)
    openvino.save_model(model, result / MODEL_FILES[0], compress_to_fp16=False)
    write_properties(result, properties)
    return result


_MEMORY, _DISK = 5, 7
"""Most memory that a conversion takes, and space on the disk that it and the first load take, in sizes of the file."""


def int8_folder(path: Path, context_length: int, progress: Callable[[str], None], *, memory: int | None = None) -> Path:
    """Return the cached IR folder with int8 weights of the GGUF file at ``path``, converting it if necessary.

    ``context_length`` is stated in the folder's configuration. ``memory`` is how many bytes a conversion may take; by
    default, as many as it needs. Raises :class:`DamagedModel` if the file has tensors that are not finite, and
    :class:`ModelError`, :class:`OSError` or :class:`RuntimeError` (from OpenVINO) if the conversion fails.
    """

    def make(scratch: Path) -> Path:
        size = model_bytes(path)
        if memory is not None:
            _check_room("memory", _MEMORY * size, memory)
        _check_room("disk space", _DISK * size, shutil.disk_usage(scratch).free)
        progress(f"{MAKING_WEIGHTS} of {path.name} ({size / 1e6:.0f} MB), once; --weights original does without")
        return remake(export_gguf(path, context_length, scratch, exact=True), scratch)

    def wait() -> None:
        progress(f"{MAKING_WEIGHTS} of {path.name} in another worker")

    return cached_form("int8", path, (str(context_length), _VERSION), make, wait)


def _check_room(kind: str, needed: float, free: int) -> None:
    if free < needed:
        raise ModelError(f"It takes up to {needed / 1e9:.1f} GB of {kind}, and {free / 1e9:.1f} GB are free.")
