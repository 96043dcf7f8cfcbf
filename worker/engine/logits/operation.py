"""The logits tap: an OpenVINO operation in Python inside the model's graph, called with the logits of each step.

OpenVINO GenAI's Python API has no access to logits. The tap sees every row of logits before a token is sampled from it,
and returns a bias that the graph adds to the logits (:mod:`worker.engine.logits.graph`).
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import openvino
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

TYPE_NAME = "LogitsTap"

Logits = NDArray[numpy.float32]
Ids = NDArray[numpy.int64]

OnLogits = Callable[[Logits, Ids, Ids], Logits | None]
"""Called with the logits of a step [rows, vocabulary], and the token and the position that each row was computed from
[rows]. Returns the bias to add [rows, vocabulary], or None. The arrays are valid only during the call."""


class TapFailed(Exception):
    """A model can't be loaded or run with the tap. It may be possible without."""


class LogitsTap(openvino.Op):  # type: ignore[misc]
    """The operation. Inputs: logits [rows, 1, vocabulary], tokens [rows], positions [rows]. Output: the bias.

    OpenVINO creates instances itself, so the listener is an attribute of the class: one tapped model per process.
    OpenVINO calls :meth:`evaluate` in the thread that steps the pipeline.
    """

    class_type_info = openvino.DiscreteTypeInfo(TYPE_NAME, "vinoqueue")
    listener: OnLogits | None = None
    failures = 0
    """Number of exceptions that the listener has raised."""
    _shape_inference: "LogitsTap | None" = None

    def __init__(self, inputs: Sequence[openvino.Output] | None = None) -> None:
        """``inputs`` is None when OpenVINO reads a model's file."""
        if inputs is None:
            super().__init__(self)
        else:
            super().__init__(self, list(inputs))
            self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self) -> None:
        """Declare a dynamic output shape. With a static one, OpenVINO would infer it in another thread."""
        self.set_output_type(0, openvino.Type.f32, openvino.PartialShape([-1, 1, -1]))

    def clone_with_new_inputs(self, new_inputs: Sequence[openvino.Output]) -> "LogitsTap":
        """Return a copy with other inputs; for shape inference, always the same one.

        OpenVINO clones the operation in every step to infer its shape, and never frees the clone.
        """
        if new_inputs[0].get_node().get_type_name() not in ("Parameter", "Constant"):
            return LogitsTap(new_inputs)
        if LogitsTap._shape_inference is None:
            LogitsTap._shape_inference = LogitsTap(new_inputs)
        return LogitsTap._shape_inference

    def get_type_info(self) -> Any:
        """Return the identity of the operation in model files."""
        return LogitsTap.class_type_info

    def visit_attributes(self, visitor: Any) -> bool:
        """The operation has no attributes."""
        return True

    def has_evaluate(self) -> bool:
        """The operation computes its output itself."""
        return True

    def evaluate(self, outputs: Any, inputs: Any) -> bool:
        """Call the listener, and write the bias that it returns.

        Never raises: an exception here would make the pipeline's step fail for all sequences.
        """
        bias = None
        listener = LogitsTap.listener
        if listener is not None:
            try:
                logits = inputs[0].data
                bias = listener(
                    logits.reshape(-1, logits.shape[-1]), inputs[1].data.reshape(-1), inputs[2].data.reshape(-1)
                )
            except Exception:
                LogitsTap.failures += 1
                logger.exception("the logits of a step can't be read")
        if bias is None:
            outputs[0].shape = [1, 1, 1]
            outputs[0].data[...] = 0
        else:
            outputs[0].shape = [bias.shape[0], 1, bias.shape[1]]
            outputs[0].data[:, 0, :] = bias
        return True


def extension() -> openvino.OpExtension:
    """Return the extension that makes the operation known to a pipeline."""
    return openvino.OpExtension(LogitsTap)
