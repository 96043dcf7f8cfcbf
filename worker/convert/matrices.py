"""The matrices among a model's constants."""

import math
from collections.abc import Iterator

import openvino

_SMALLEST = 1 << 12
"""Elements below which a matrix takes no time worth saving."""


def matrix_of(port: openvino.Input) -> openvino.Node | None:
    """Return the constant of plain floats that an input takes as a matrix, converted at most; else ``None``."""
    node = port.get_source_output().get_node()
    constant = node.input_value(0).get_node() if node.get_type_name() == "Convert" else node
    if constant.get_type_name() != "Constant" or not constant.get_output_element_type(0).is_real():
        return None
    return constant if len(constant.shape) == 2 and math.prod(constant.shape) >= _SMALLEST else None


def weights_of(model: openvino.Model) -> Iterator[tuple[openvino.Node, openvino.Input, openvino.Node, int]]:
    """What ``model`` multiplies by or looks up: each user, its input, the matrix there, and the axis along which the
    matrix's rows lie. The inputs may be given other sources meanwhile.

    A row is all weights of one output, or of one entry of a table.
    """
    for user in model.get_ordered_ops():
        for at, port in enumerate(user.inputs()):
            axis, matrix = _row_axis(user, at), matrix_of(port)
            if axis is not None and matrix is not None:
                yield user, port, matrix, axis


def factor_lengths(model: openvino.Model) -> Iterator[int]:
    """The lengths of the rows by which ``model`` multiplies; its matrices must be plain floats."""
    return (matrix.shape[axis] for user, _, matrix, axis in weights_of(model) if user.get_type_name() == "MatMul")


def _row_axis(user: openvino.Node, at: int) -> int | None:
    """The axis along which a row of ``user``'s input number ``at`` lies; ``None`` if that takes no weights."""
    match user.get_type_name(), at:
        case "MatMul", 1:
            return 1 if user.get_attributes()["transpose_b"] else 0
        case "Gather", 0:
            return 1
    return None
