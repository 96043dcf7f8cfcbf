"""The graph of an embedding model or a reranker: its encoder and what is behind it, as one OpenVINO model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import openvino
from openvino import opset13 as opset

from worker.embed.encoder import make_encoder, read_safetensors
from worker.model.embedding import SAFETENSORS, EmbeddingFiles, Pooling
from worker.model.source import ModelError

_LEAST = 1e-12
"""Least norm by which a vector is divided, as in PyTorch's normalize."""

_TOKENS = ("last_hidden_state", "token_embeddings")
"""Names of the output with the vector of each token, in exported models."""

_ACTIVATIONS: Mapping[str, Any] = {
    "Identity": lambda value: value,
    "Tanh": opset.tanh,
    "ReLU": opset.relu,
    "GELU": lambda value: opset.gelu(value, "erf"),
    "Sigmoid": opset.sigmoid,
}

KNOWN_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "position_ids"})


def make_model(files: EmbeddingFiles, core: openvino.Core) -> openvino.Model:
    """Return the model, whose output is a vector of each text. All texts of a call have the same length.

    The vector of a reranker has two values: the score of a pair, without and with the model's activation.

    Raises :class:`ModelError` for weights that can't be read, and :class:`RuntimeError` where OpenVINO fails.
    """
    if files.weights.name == SAFETENSORS:
        encoder = make_encoder(files.weights, files.config, scores=bool(files.scores))
    else:
        encoder = core.read_model(files.weights)
    inputs = {name for one in encoder.inputs for name in one.get_names()}
    if "input_ids" not in inputs or len(encoder.inputs) != len(inputs & KNOWN_INPUTS):
        raise ModelError(f"{files.weights} has other inputs than an encoder of text: {', '.join(sorted(inputs))}.")
    if files.scores:
        return openvino.Model([opset.result(_scores(encoder, files))], encoder.get_parameters(), "reranker")
    vectors = _pooled(_output(encoder, files, 3, _TOKENS), files.pooling)
    for layer in files.dense:
        arrays = read_safetensors(layer.weights)
        vectors = opset.matmul(vectors, opset.constant(arrays["linear.weight"]), False, True)
        if "linear.bias" in arrays:
            vectors = opset.add(vectors, opset.constant(arrays["linear.bias"]))
        vectors = _ACTIVATIONS[layer.activation](vectors)
    if files.normalize:
        norm = opset.sqrt(opset.reduce_sum(opset.multiply(vectors, vectors), opset.constant([-1]), True))
        vectors = opset.divide(vectors, opset.maximum(norm, opset.constant(numpy.float32(_LEAST))))
    return openvino.Model([opset.result(vectors)], encoder.get_parameters(), "embedder")


def _scores(encoder: openvino.Model, files: EmbeddingFiles) -> Any:
    logits = opset.convert(_output(encoder, files, 2, ("logits",)), "f32")
    width = logits.get_output_partial_shape(0)[1]
    if width.is_dynamic or not 1 <= (labels := width.get_length()) <= 2:
        raise ModelError(f"{files.weights} has {width} scores of a pair. A reranker has one.")
    # Of two labels, the second one is "relevant".
    logit = opset.gather(logits, opset.constant([labels - 1]), opset.constant(1))
    return opset.concat([logit, opset.sigmoid(logit) if files.scores == "Sigmoid" else logit], -1)


def _output(encoder: openvino.Model, files: EmbeddingFiles, rank: int, names: Sequence[str]) -> Any:
    for output in encoder.outputs:
        if output.get_partial_shape().rank.get_length() == rank and (
            len(encoder.outputs) == 1 or output.get_names() & set(names)
        ):
            return output.get_node().input_value(0)
    task = "text-classification" if files.scores else "feature-extraction"
    raise ModelError(f"{files.weights} has no output {' or '.join(names)}: export it for {task}.")


def _pooled(tokens: Any, pooling: Sequence[Pooling]) -> Any:
    tokens = opset.convert(tokens, "f32")
    pooled = [_pool(tokens, one) for one in pooling]
    return pooled[0] if len(pooled) == 1 else opset.concat(pooled, -1)


def _pool(tokens: Any, pooling: Pooling) -> Any:
    """Return one vector of the tokens (texts, tokens, width)."""
    axis = opset.constant([1])
    match pooling:
        case "mean":
            return opset.reduce_mean(tokens, axis, False)
        case "max":
            return opset.reduce_max(tokens, axis, False)
        case "cls":
            return opset.gather(tokens, opset.constant(0), opset.constant(1))
        case "lasttoken":
            return opset.gather(tokens, opset.constant(-1), opset.constant(1))
    length = opset.gather(opset.shape_of(tokens), opset.constant(1), opset.constant(0))
    if pooling == "mean_sqrt_len_tokens":
        return opset.divide(opset.reduce_sum(tokens, axis, False), opset.sqrt(opset.convert(length, "f32")))
    one = opset.constant(numpy.int64(1))
    weights = opset.convert(opset.range(one, opset.add(length, one), one, "i64"), "f32")
    weighted = opset.multiply(tokens, opset.unsqueeze(weights, opset.constant(1)))
    total = opset.reduce_sum(weights, opset.constant([0]), False)
    return opset.divide(opset.reduce_sum(weighted, axis, False), total)
