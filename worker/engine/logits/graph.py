"""Puts the logits tap into a model's graph, as a second consumer of the logits."""

import numpy
import openvino
from openvino import opset13 as opset

from worker.engine.logits.operation import LogitsTap

_SAMPLED = "sampled_tokens_indices"
"""Input with the indices of the tokens whose logits are needed. The pipeline adds and fills it; if the model already
has it, the pipeline only fills it."""


class NoTap(ValueError):
    """The model has no place for the tap. The message names what is missing."""


def add_tap(model: openvino.Model) -> None:
    """Insert the tap into ``model``, in place. Raises :class:`NoTap` if it is not a language model of a known form.

    The tap changes logits in place, in the memory that the pipeline samples from: the plugin gives all consumers of the
    logits the same memory, and reads the model's outputs when all operations have run. The warm-up tests that. Adding a
    bias, which is nearly always zero, in the graph costs up to 2 % of a step.

    The weights keep their single consumer, because the CPU plugin multiplies by compressed weights only then. Token ids
    are taken modulo the number of logits, so that a multiple of it can mark a request without changing its result.
    """
    parameters = {name: parameter for parameter in model.get_parameters() for name in parameter.output(0).get_names()}
    for name in ("input_ids", "position_ids"):
        if name not in parameters:
            raise NoTap(f"the model has no input '{name}'")
    result = model.output(0).node
    logits = result.input(0).get_source_output()
    shape = logits.get_partial_shape()
    if len(shape) != 3 or not shape[2].is_static:
        raise NoTap(f"the shape of the model's logits is {shape}, not [batch, tokens, vocabulary]")
    _apply_modulo(parameters["input_ids"], shape[2].get_length())
    indices = opset.parameter([-1], openvino.Type.i64, name=_SAMPLED)
    indices.output(0).set_names({_SAMPLED})
    axis = opset.constant(numpy.array(0, numpy.int64))

    projection = _projection(logits)
    hidden = projection.input(0)
    hidden.replace_source_output(opset.gather(hidden.get_source_output(), indices.output(0), axis).output(0))
    # The conversion keeps the pipeline from finding the projection, to which it would add its own indices. For f32
    # logits it does nothing, and is removed when the model is compiled.
    converted = opset.convert(logits, openvino.Type.f32)
    result.input(0).replace_source_output(converted.output(0))
    converted.output(0).set_names({"logits"})
    inputs = (parameters["input_ids"], parameters["position_ids"], indices)
    tap = LogitsTap([converted.output(0), *(node.output(0) for node in inputs)])
    tap.output(0).set_names({"logits_tap"})
    model.add_results([opset.result(tap.output(0))])
    model.add_parameters([indices])
    model.validate_nodes_and_infer_types()


def _projection(logits: openvino.Output) -> openvino.Node:
    """Return the multiplication by the vocabulary's matrix, which a soft cap or a conversion may follow."""
    node = logits.get_node()
    while node.get_type_name() != "MatMul":
        if not node.inputs():
            raise NoTap("the model's logits do not come from a multiplication of matrices")
        node = node.input(0).get_source_output().get_node()
    return node


def _apply_modulo(parameter: openvino.Node, size: int) -> None:
    """Take the values of ``parameter`` modulo ``size``, for all its consumers."""
    consumers = [
        port for port in parameter.output(0).get_target_inputs() if port.get_node().get_type_name() != "ShapeOf"
    ]
    # An attribute of Clamp, not a constant, so that the weights' file stays the same.
    modulus = opset.clamp(opset.constant(numpy.array(0, numpy.int64)), size, size)
    remainder = opset.floor_mod(parameter.output(0), modulus).output(0)
    for consumer in consumers:
        consumer.replace_source_output(remainder)
