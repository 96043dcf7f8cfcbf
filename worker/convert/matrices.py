"""The matrices among a model's constants."""

import math

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
