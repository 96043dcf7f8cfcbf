"""Weight compression of OpenVINO models: weights are unpacked to f16, then compressed to int8."""

import math
from collections.abc import Sequence

import numpy
import openvino
from openvino import opset13 as opset

from worker.model.files import Properties
from worker.model.local import ModelError
from worker.weights.activations import fast_properties
from worker.weights.int8 import quantise_rows
from worker.weights.matrices import factor_lengths
from worker.weights.merge import merge_products

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
