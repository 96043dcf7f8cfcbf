"""Applies what a GGUF file says about rotary position embeddings, which OpenVINO GenAI ignores.

The formulas are llama.cpp's: linear interpolation of positions, YaRN (https://arxiv.org/abs/2309.00071), and factors of
each frequency (``rope_freqs.weight``), as Llama 3.1 has them.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy
import openvino
from numpy.typing import NDArray
from openvino import opset13 as opset

from worker.model.source import ModelError

FACTORS = "rope_freqs.weight"
"""The tensor with the number that each frequency is divided by."""

_BASE = 10000.0
_BETA_FAST, _BETA_SLOW = 32.0, 1.0


class Rotation(NamedTuple):
    """The angle of each pair of dimensions per position, in radians, and the factor of attention scores.

    ``plain`` are the angles without scaling, which GenAI's graph has.
    """

    plain: NDArray[numpy.float64]
    frequencies: NDArray[numpy.float64]
    scale: float

    @property
    def is_plain(self) -> bool:
        """Whether nothing is scaled."""
        return bool(numpy.array_equal(self.frequencies, self.plain)) and self.has_plain_scale

    @property
    def has_plain_scale(self) -> bool:
        """Whether attention has the scale that it has without one: one over the root of the size of a head."""
        return math.isclose(self.scale, (2 * len(self.plain)) ** -0.5, rel_tol=1e-5)


def read_rotation(own: Mapping[str, Any], head: int, factors: NDArray[numpy.float32] | None) -> Rotation:
    """Return the rotation that a file states.

    ``own`` are the keys of the architecture, ``head`` is a head's size, and ``factors`` are those of the tensor.
    """
    kind = own.get("rope.scaling.type", "linear")
    factor = own.get("rope.scaling.factor") or own.get("rope.scale_linear") or 1.0
    plain = float(own.get("rope.freq_base", _BASE)) ** -(numpy.arange(0, head, 2) / head)
    frequencies = plain if factors is None else plain / factors
    # Both queries and keys are scaled.
    scale = head**-0.5 * own.get("rope.scaling.attn_factor", 1.0) ** 2
    if kind == "linear":
        frequencies = frequencies / factor
    elif kind == "yarn":
        interpolated = _interpolated(own, head)
        frequencies = frequencies * (1 - interpolated + interpolated / factor)
        scale *= (1 + 0.1 * math.log(factor)) ** 2
    return Rotation(plain, frequencies, scale)


def _interpolated(own: Mapping[str, Any], head: int) -> NDArray[numpy.float64]:
    """Return the share of interpolation of each frequency: 0 for the high ones, 1 for the low ones."""
    length = own.get("rope.scaling.original_context_length") or own["context_length"]

    def place(rotations: float) -> float:
        """Return the pair that turns so many times in the original context."""
        return head * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(own.get("rope.freq_base", _BASE)))

    low = max(0, math.floor(place(own.get("rope.scaling.yarn_beta_fast", _BETA_FAST))))
    high = min(head - 1, math.ceil(place(own.get("rope.scaling.yarn_beta_slow", _BETA_SLOW))))
    ramp: NDArray[numpy.float64] = (numpy.arange(head // 2) - low) / max(0.001, high - low)
    return ramp.clip(0, 1)


def rotate(model: openvino.Model, wanted: Rotation) -> bool:
    """Give ``model``, as GenAI made it, the rotations that are wanted, in f32; return whether that changed it.

    GenAI saves those of an f16 model in f16, which are wrong after a few hundred positions. Raises :class:`ModelError`
    if the graph has another form than expected.
    """
    shape = [1, len(wanted.plain), 1]
    nodes = model.get_ordered_ops()
    constants = [
        node
        for node in nodes
        if node.get_type_name() == "Constant"
        and list(node.get_output_shape(0)) == shape
        and numpy.allclose(node.get_data(dtype=numpy.float32).reshape(-1), wanted.plain, rtol=1e-3, atol=1e-7)
    ]
    attentions = [node for node in nodes if node.get_type_name() == "ScaledDotProductAttention"]
    if len(constants) != 1 or not attentions:
        raise ModelError("OpenVINO GenAI's graph of the model has another form than expected, so RoPE can't be scaled.")
    (constant,) = constants
    if wanted.is_plain and constant.get_output_element_type(0) == openvino.Type.f32:
        return False
    ports = constant.output(0).get_target_inputs()
    (first,) = {port.get_node().get_type_name() for port in ports}
    replaced = opset.constant(wanted.frequencies.reshape(shape).astype(numpy.float32))
    for port in ports:
        users = port.get_node().output(0).get_target_inputs() if first == "Convert" else [port]
        for user in users:
            user.replace_source_output(replaced.output(0))
    for node in () if wanted.has_plain_scale else attentions:
        inputs = [port.get_source_output() for port in node.inputs()][:4]
        scaled = opset.scaled_dot_product_attention(*inputs, opset.constant(numpy.float32(wanted.scale)), causal=False)
        for port in node.output(0).get_target_inputs():
            port.replace_source_output(scaled.output(0))
    return True
