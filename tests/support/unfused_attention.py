"""A model whose attention is not fused into one operation, which no paged KV cache can replace."""

import shutil
from pathlib import Path

import numpy
import openvino
from openvino import opset13 as opset

from worker.model.files import LANGUAGE_MODEL, sees_images
from worker.openvino.export import MODEL_FILES


def copy_unfused(model: Path, folder: Path) -> Path:
    """Copy the IR folder ``model`` to ``folder``, with matrix multiplications in place of its fused attention."""
    shutil.copytree(model, folder)
    name = LANGUAGE_MODEL if sees_images(model) else MODEL_FILES[0]
    graph = openvino.Core().read_model(model / name)
    for node in graph.get_ordered_ops():
        if node.get_type_name() == "ScaledDotProductAttention":
            node.output(0).replace(_attention(node))
    graph.validate_nodes_and_infer_types()
    openvino.save_model(graph, folder / name, compress_to_fp16=False)
    return folder


def _attention(fused: openvino.Node) -> openvino.Output:
    query, key, value, mask = (fused.input_value(at) for at in range(4))
    size = query.get_partial_shape()[3].get_length()
    scaled = opset.multiply(query, opset.constant(numpy.array(size**-0.5, numpy.float32)))
    scores = opset.add(opset.matmul(scaled, key, transpose_a=False, transpose_b=True), mask)
    return opset.matmul(opset.softmax(scores, 3), value, transpose_a=False, transpose_b=False).output(0)
