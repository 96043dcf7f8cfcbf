"""Puts the logits tap into a model's graph: ``logits = LogitsTap(logits, token, position) + logits``."""

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

    The weights keep their single consumer, because the CPU plugin multiplies by compressed weights only then. Token ids
    are taken modulo the number of logits, so that a multiple of it can mark a request without changing its result.
    """
    parameters = {name: one for one in model.get_parameters() for name in one.output(0).get_names()}
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

    def sampled(values: openvino.Output) -> openvino.Output:
        return opset.gather(values, indices.output(0), axis).output(0)

    projection = _projection(logits)
    projection.input(0).replace_source_output(sampled(projection.input(0).get_source_output()))
    tokens, positions = (sampled(parameters[name].output(0)) for name in ("input_ids", "position_ids"))
    tap = LogitsTap([logits, tokens, positions])
    # In this order: the pipeline looks for the projection along first inputs, and would add indices of its own.
    total = opset.add(tap.output(0), logits)
    result.input(0).replace_source_output(total.output(0))
    total.output(0).set_names({"logits"})
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
    consumers = [one for one in parameter.output(0).get_target_inputs() if one.get_node().get_type_name() != "ShapeOf"]
    # An attribute of Clamp, not a constant, so that the weights' file stays the same.
    modulus = opset.clamp(opset.constant(numpy.array(0, numpy.int64)), size, size)
    remainder = opset.floor_mod(parameter.output(0), modulus).output(0)
    for consumer in consumers:
        consumer.replace_source_output(remainder)
