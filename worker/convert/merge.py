"""Products of one input by several matrices, made into one product: each has a fixed cost, whatever its size.

Attention multiplies its input by three matrices, and a gated layer by two. Their rows in one matrix give the same
numbers, one behind the other.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy
import openvino
from openvino import opset13 as opset

from worker.convert.matrices import matrix_of

_ROWS = {"transpose_a": False, "transpose_b": True}


def merge_products(model: openvino.Model) -> None:
    """Merge what ``model`` multiplies one input by: matrices of plain floats, of which each row is an output."""
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
    """Put one product in the place of ``products``, each of which multiplies the same by its own of ``matrices``."""
    whole = opset.constant(numpy.concatenate([matrix.data for matrix in matrices]))
    whole.set_friendly_name("+".join(matrix.get_friendly_name() for matrix in matrices))
    first = products[0]
    weights = opset.convert(whole, first.input_value(1).get_element_type().get_type_name())
    product = opset.matmul(first.input_value(0), weights, False, True)
    product.set_friendly_name("+".join(one.get_friendly_name() for one in products))
    lengths = numpy.array([matrix.shape[0] for matrix in matrices], numpy.int64)
    parts = opset.variadic_split(product, opset.constant(numpy.int64(-1)), opset.constant(lengths))
    for at, one in enumerate(products):
        for target in one.output(0).get_target_inputs():
            target.replace_source_output(parts.output(at))
