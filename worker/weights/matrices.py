"""Discovery of the weight matrices among a model's constants."""

import math
from collections.abc import Iterator

import openvino

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
