"""Fusion of matrix products that share an input, because each product has a fixed cost independent of its size.

Attention multiplies its input by three matrices, a gated layer by two. The concatenation of their rows is one matrix,
whose product is split again.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy
import openvino
from openvino import opset13 as opset

from worker.weights.matrices import matrix_of

_ROWS = {"transpose_a": False, "transpose_b": True}


def merge_products(model: openvino.Model) -> None:
    """Merge the products in ``model`` that share an input and have uncompressed matrices with one row per output."""
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
