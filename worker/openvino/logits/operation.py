"""The logits hook: an OpenVINO operation in Python inside the model's graph, called with the logits of each step.

OpenVINO GenAI's Python API has no access to logits. The hook sees every row of logits before a token is sampled from
it, and biases are added in place (:mod:`worker.openvino.logits.graph`).

It runs in every step, even if no sequence needs logits. By then the model's weights have evicted everything from the
caches, so each Python object that it touches costs about a microsecond.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy
import openvino
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

TYPE_NAME = "LogitsHook"

Logits = NDArray[numpy.float32]
Indices = NDArray[numpy.integer[Any]]


class StepInput(NamedTuple):
    """What the pipeline tells the model about the sequences of a step, in its order: inputs of these names.

    ``sampled_tokens_indices`` [rows]: indices of the tokens that have a row of logits. ``past_lens`` [sequences]: the
    number of tokens in the KV cache before the step. ``subsequence_begins`` [sequences + 1]: index of a sequence's
    first token. ``block_indices``: the blocks of the KV cache of all sequences; ``block_indices_begins`` [sequences +
    1]: where those of a sequence begin.
    """

    sampled_tokens_indices: Indices
    past_lens: Indices
    subsequence_begins: Indices
    block_indices: Indices
    block_indices_begins: Indices


class Listener(Protocol):
    """Reads and changes the logits of each step."""

    def wants_rows(self) -> bool:
        """Return whether :meth:`on_logits` is to be called in this step."""

    def on_logits(self, logits: Logits, step: StepInput) -> None:
        """Read a step's logits [rows, vocabulary]. Biases are added in place, before tokens are sampled.

        The arrays are valid only during the call.
        """


class HookFailed(Exception):
    """A model can't be loaded or run with the hook. It may be possible without."""


class LogitsHook(openvino.Op):  # type: ignore[misc]
    """The operation. Inputs: logits [rows, 1, vocabulary], and the arrays of a :class:`StepInput`.

    The output has no meaning: operations without one are removed from graphs. OpenVINO creates instances itself, so the
    listener is an attribute of the class: one hooked model per process. It calls :meth:`evaluate` in the thread that
    steps the pipeline.
    """

    class_type_info = openvino.DiscreteTypeInfo(TYPE_NAME, "vinoqueue")
    listener: Listener | None = None
    failures = 0
    """Number of exceptions that the listener has raised."""
    _compiled = False
    """Whether this instance is part of a compiled model."""

    def __init__(self, inputs: Sequence[openvino.Output] | None = None) -> None:
        """``inputs`` is None when OpenVINO reads a model's file."""
        if inputs is None:
            super().__init__(self)
        else:
            super().__init__(self, list(inputs))
        # Not in validate_and_infer_types, which would be called in every step.
        self.set_output_type(0, openvino.Type.f32, openvino.PartialShape([1]))

    def clone_with_new_inputs(self, new_inputs: Sequence[openvino.Output]) -> "LogitsHook":
        """Return a copy with other inputs; in a compiled model, the operation itself.

        OpenVINO clones a compiled operation in every step to infer its output's shape, and never frees the clone.
        """
        return self if self._compiled else LogitsHook(new_inputs)

    def get_type_info(self) -> Any:
        """Return the identity of the operation in model files."""
        return LogitsHook.class_type_info

    def visit_attributes(self, visitor: Any) -> bool:
        """The operation has no attributes."""
        return True

    def has_evaluate(self) -> bool:
        """The operation computes its output itself."""
        return True

    def evaluate(self, outputs: Any, inputs: Any) -> bool:
        """Call the listener if it wants rows.

        Never raises: an exception here would make the pipeline's step fail for all sequences.
        """
        self._compiled = True
        listener = LogitsHook.listener
        try:
            if listener is not None and listener.wants_rows():
                logits, *step = (tensor.data for tensor in inputs)
                step_input = StepInput(*(array.reshape(-1) for array in step))
                listener.on_logits(logits.reshape(-1, logits.shape[-1]), step_input)
        except Exception:
            LogitsHook.failures += 1
            logger.exception("the logits of a step can't be read")
        return True


def extension() -> openvino.OpExtension:
    """Return the extension that makes the operation known to a pipeline."""
    return openvino.OpExtension(LogitsHook)
