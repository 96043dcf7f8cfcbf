"""Symmetric int8 quantisation of weights with one scale per row, the fastest format on CPUs with dynamic quantisation.

A row holds all weights of one output. Its scale maps the largest absolute weight to 127; there is no zero point.
"""

import numpy
import openvino
from numpy.typing import NDArray
from openvino import opset13 as opset

from worker.weights.matrices import weights_of


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
