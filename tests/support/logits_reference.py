"""Log probabilities computed independently: by plain OpenVINO in exact precision, with a full log-softmax."""

from pathlib import Path

import numpy
import openvino
from numpy.typing import NDArray

from tests.support.fleet import ONE_THREAD
from worker.openvino.load import EXACT


class Reference:
    """The model without a hook or a pipeline."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the IR folder of the model."""
        core = openvino.Core()
        compiled = core.compile_model(core.read_model(folder / "openvino_model.xml"), "CPU", EXACT | ONE_THREAD)
        self._request = compiled.create_infer_request()

    def logprobs(self, tokens: tuple[int, ...]) -> NDArray[numpy.float64]:
        """The log probabilities [position, vocabulary] of the token after each position."""
        self._request.reset_state()
        count = len(tokens)
        result = self._request.infer(
            {
                "input_ids": numpy.array([tokens], numpy.int64),
                "attention_mask": numpy.ones((1, count), numpy.int64),
                "position_ids": numpy.arange(count, dtype=numpy.int64)[None],
                "beam_idx": numpy.zeros(1, numpy.int32),
            }
        )
        logits = result[0][0].astype(numpy.float64)
        highest = logits.max(1, keepdims=True)
        logprobs: NDArray[numpy.float64] = (
            logits - highest - numpy.log(numpy.exp(logits - highest).sum(1, keepdims=True))
        )
        return logprobs
