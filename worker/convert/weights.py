"""The weights of an OpenVINO model in another format: unpacked to f16, then compressed by NNCF.

NNCF (https://github.com/openvinotoolkit/nncf) is the optional extra ``convert``: nothing else needs it.
"""

import contextlib
import importlib.util
import logging
import os
import sys
from typing import Any, Literal

import msgspec
import numpy
import openvino
from openvino import opset13 as opset

from worker.models import ModelError

Format = Literal["int4", "int8", "f16"]

DEFAULT_GROUP = 32
PER_CHANNEL = -1

_SMALL = 64
"""Bytes up to which a constant is a parameter of an operation, not a weight."""

_PACKED = frozenset({"u1", "u2", "u3", "u4", "u6", "u8", "i4", "i8", "nf4", "f4e2m1", "f8e4m3", "f8e5m2", "f8e8m0"})
_DECOMPRESSION = frozenset({"Constant", "Convert", "Subtract", "Multiply", "Reshape", "Transpose"})
"""The operations between packed weights and the operation that uses them."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A weight format. ``group`` is how many int4 weights of a row share a scale (-1: the whole row).

    The table of embeddings and the last layer, which quality depends on most, are int8 in an int4 model, unless
    ``small_ends`` makes them int4, too.
    """

    format: Format = "int4"
    group: int = DEFAULT_GROUP
    small_ends: bool = False

    def __str__(self) -> str:
        if self.format != "int4":
            return self.format
        groups = "per channel" if self.group == PER_CHANNEL else f"in groups of {self.group}"
        return f"int4 {groups}, embeddings and last layer {'int4' if self.small_ends else 'int8'}"


def check_tools(weights: Weights) -> None:
    """Raise :class:`ModelError` when what makes ``weights`` is not installed."""
    if weights.format != "f16" and importlib.util.find_spec("nncf") is None:
        raise ModelError(
            f"Compressing weights to {weights.format} needs NNCF, which is not installed. "
            "Install it with: pip install 'vinoqueue[worker,convert]'"
        )


def compress(model: openvino.Model, weights: Weights) -> openvino.Model:
    """Return ``model``, which is used up, with its weights in the format ``weights``.

    Raises :class:`ModelError` when the model's shapes don't allow it or NNCF is not installed.
    """
    check_tools(weights)
    _unpack(model)
    if weights.format == "f16":
        return model
    # NNCF reports each use to a statistics service unless this is set when it is imported. We report nothing.
    os.environ.setdefault("NNCF_CI", "1")
    import nncf

    nncf.set_log_level(logging.WARNING)
    options: dict[str, Any] = {"mode": nncf.CompressWeightsMode.INT8_SYM}
    if weights.format == "int4":
        options = {
            "mode": nncf.CompressWeightsMode.INT4_ASYM,
            "group_size": weights.group,
            "ratio": 1.0,
            "all_layers": weights.small_ends,
        }
    try:
        with contextlib.redirect_stdout(sys.stderr):  # its progress bars
            compressed: openvino.Model = nncf.compress_weights(model, **options)
    except (nncf.ValidationError, nncf.InvalidGroupSizeError, nncf.UnsupportedModelError) as error:
        raise ModelError(f"NNCF can't compress this model's weights to {weights}: {error}") from error
    return compressed


def _unpack(model: openvino.Model) -> None:
    """Replace weights that are packed already by their values in f16."""
    core = openvino.Core()
    for user in model.get_ordered_ops():
        for port in user.inputs():
            source = port.get_source_output()
            node = source.get_node()
            if user.get_type_name() in _DECOMPRESSION or not _is_packed_weight(node):
                continue
            values = core.compile_model(openvino.Model([node], []), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([])[0]
            plain = opset.constant(values.astype(numpy.float16))
            plain.set_friendly_name(f"{node.get_friendly_name()}/unpacked")
            converted = opset.convert(plain, source.get_element_type().get_type_name())
            converted.set_friendly_name(node.get_friendly_name())
            for target in source.get_target_inputs():
                target.replace_source_output(converted.output(0))
    model.validate_nodes_and_infer_types()


def _is_packed_weight(node: openvino.Node) -> bool:
    """Whether ``node`` has floats as its output, and computes them from packed constants and nothing else."""
    if not node.get_output_element_type(0).is_real():
        return False
    packed = False
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one.get_type_name() not in _DECOMPRESSION:
            return False
        if one.get_type_name() == "Constant":
            size = one.get_byte_size()
            packed = packed or (one.get_output_element_type(0).get_type_name() in _PACKED and size > _SMALL)
        waiting += [port.get_source_output().get_node() for port in one.inputs()]
    return packed
