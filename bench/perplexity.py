"""Perplexity of a model on a sample text, to measure the quality loss of a weight format.

The text is ``sample.txt`` beside this module (prose, instructions, questions, a letter, a little code). It was written
for this purpose, so no model has memorised it. Perplexities are comparable only between models with the same
tokenizer.
"""

from pathlib import Path
from typing import Any

import numpy
import openvino
import openvino_genai
from numpy.typing import NDArray

from worker.engine.load import EXACT

_LOGITS_BYTES = 400_000_000
"""Maximum size of the logits of one inference, which have 4 bytes per token and vocabulary entry. The fewer inferences,
the faster: attention to the tokens of earlier ones takes several times as long."""

_ROWS = 256
"""Minimum number of tokens per inference, and the number whose logits are evaluated together."""

_MIN_TOKENS = 2


def sample_tokens(folder: Path, most: int) -> NDArray[numpy.int64]:
    """Return the first ``most`` token ids of the sample text, with the tokenizer of an IR folder."""
    text = Path(__file__).with_name("sample.txt").read_text("utf-8")
    tokenizer = openvino_genai.Tokenizer(str(folder))
    ids: NDArray[numpy.int64] = tokenizer.encode(text).input_ids.data[0][:most].copy()
    return ids


def perplexity(folder: Path, tokens: NDArray[numpy.int64]) -> float:
    """Return the perplexity on ``tokens`` of the model in an IR folder: exp of the mean negative log-likelihood.

    It is computed on the CPU in f32, so that it depends on the weights alone.
    Raises :class:`ValueError` for fewer than two tokens, and :class:`RuntimeError` if OpenVINO can't run the model.
    """
    if len(tokens) < _MIN_TOKENS:
        raise ValueError(f"A perplexity needs at least {_MIN_TOKENS} tokens; there are {len(tokens)}.")
    model = openvino.Core().compile_model(folder / "openvino_model.xml", "CPU", EXACT)
    names = {name for port in model.inputs for name in port.names}
    request = model.create_infer_request()
    nll = 0.0
    size = _tokens_per_inference(model)
    for start in range(0, len(tokens) - 1, size):
        chunk = tokens[start : start + size]
        request.infer({name: value for name, value in _inputs(chunk, start).items() if name in names})
        targets = tokens[start + 1 : start + 1 + len(chunk)]
        logits = request.get_tensor("logits").data[0]
        for row in range(0, len(targets), _ROWS):
            batch = targets[row : row + _ROWS]
            nll += _negative_log_likelihood(logits[row : row + len(batch)], batch)
    return float(numpy.exp(nll / (len(tokens) - 1)))


def _tokens_per_inference(model: openvino.CompiledModel) -> int:
    vocabulary = model.output("logits").get_partial_shape()[-1]
    return max(_LOGITS_BYTES // (4 * vocabulary.get_length()), _ROWS) if vocabulary.is_static else _ROWS


def _inputs(chunk: NDArray[numpy.int64], start: int) -> dict[str, Any]:
    """Return the inputs of a stateful language model for ``chunk``, whose first token has the position ``start``."""
    end = start + len(chunk)
    return {
        "input_ids": chunk[None],
        "attention_mask": numpy.ones((1, end), numpy.int64),
        "position_ids": numpy.arange(start, end)[None],
        "beam_idx": numpy.zeros(1, numpy.int32),
    }


def _negative_log_likelihood(logits: NDArray[numpy.float32], targets: NDArray[numpy.int64]) -> float:
    """Return the summed negative log-likelihood of the actual next tokens, in nats."""
    highest = logits.max(axis=1)
    log_sums = numpy.log(numpy.exp(logits - highest[:, None]).sum(axis=1, dtype=numpy.float64)) + highest
    return float((log_sums - logits[numpy.arange(len(targets)), targets]).sum())
