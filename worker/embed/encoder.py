"""Encoders of text as OpenVINO models, made of their safetensors: BERT, RoBERTa's kind, and MPNet.

All texts of a batch have the same length, so there is no padding and no attention mask.
Source of the graphs: the papers, and the names of the weights in the files of transformers.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy
import openvino
from openvino import opset13 as opset

from worker.model.dequantise import bf16
from worker.model.embedding import first_position
from worker.model.source import ModelError

Weights = Callable[[str], Any]
"""Returns the weights with a name. Raises :class:`ModelError` if there are none."""

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8"}
_MAX_HEADER = 1 << 26


def read_safetensors(file: Path) -> dict[str, Any]:
    """Return the arrays in ``file`` by name, floats in 32 bits.

    Format: https://github.com/huggingface/safetensors#format. Raises :class:`ModelError` for a damaged file.
    """
    try:
        data = numpy.memmap(file, numpy.uint8, mode="r")
        size = int.from_bytes(data[:8].tobytes(), "little")
        if not 0 < size <= min(_MAX_HEADER, len(data) - 8):
            raise ValueError("its header is longer than the file")
        header = msgspec.json.decode(data[8 : 8 + size].tobytes(), type=dict[str, dict[str, Any]])
        header.pop("__metadata__", None)
        return {name: _array(data[8 + size :], about) for name, about in header.items()}
    except (OSError, ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise ModelError(f"{file} is not a whole safetensors file: {error}") from error


def _array(data: Any, about: Mapping[str, Any]) -> Any:
    begin, end = about["data_offsets"]
    if not 0 <= begin <= end <= len(data):
        raise ValueError("weights lie outside of the file")
    raw = data[begin:end].tobytes()
    if about["dtype"] == "BF16":
        found = bf16(numpy.frombuffer(raw, numpy.uint8))
    else:
        found = numpy.frombuffer(raw, _TYPES[about["dtype"]])
        found = found if found.dtype.kind == "i" else found.astype(numpy.float32)
    return found.reshape(about["shape"])


class _Graph:
    """Layers with the weights of a file, below ``prefix``."""

    def __init__(self, arrays: Mapping[str, Any], epsilon: float) -> None:
        self._arrays = arrays
        # Some files have the encoder's name before all others: "bert.embeddings..."
        first = next((name for name in arrays if name.endswith("embeddings.word_embeddings.weight")), "")
        self._prefix = first.removesuffix("embeddings.word_embeddings.weight")
        self._epsilon = epsilon

    def weights(self, name: str) -> Any:
        # The names of a classifier's weights have no prefix.
        found = self._arrays.get(self._prefix + name, self._arrays.get(name))
        # Older files name the parameters of normalisation as TensorFlow does.
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        found = self._arrays.get(self._prefix + old) if found is None else found
        if found is None:
            raise ModelError(f"The weights have no {self._prefix}{name}.")
        return found

    def rows(self, name: str, indexes: Any) -> Any:
        return opset.gather(opset.constant(self.weights(name)), indexes, opset.constant(0))

    def linear(self, value: Any, name: str) -> Any:
        product = opset.matmul(value, opset.constant(self.weights(f"{name}.weight")), False, True)
        return opset.add(product, opset.constant(self.weights(f"{name}.bias")))

    def normalized(self, value: Any, name: str) -> Any:
        scaled = opset.mvn(value, opset.constant([-1]), True, self._epsilon, "inside_sqrt")
        scaled = opset.multiply(scaled, opset.constant(self.weights(f"{name}.weight")))
        return opset.add(scaled, opset.constant(self.weights(f"{name}.bias")))


_ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "gelu": lambda value: opset.gelu(value, "erf"),
    "gelu_new": lambda value: opset.gelu(value, "tanh"),
    "gelu_pytorch_tanh": lambda value: opset.gelu(value, "tanh"),
    "relu": opset.relu,
}


def make_encoder(file: Path, config: Mapping[str, Any], *, scores: bool = False) -> openvino.Model:
    """Return the encoder with the weights in ``file`` and transformers' ``config``.

    Its input is ``input_ids`` (texts, tokens), its output the vector of each token. With ``scores``, texts are pairs;
    then the types of their tokens are an input too, unless there is only one, and the output is their ``logits``.
    Raises :class:`ModelError`.
    """
    try:
        heads, layers = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
        activation = _ACTIVATIONS[config.get("hidden_act", "gelu")]
        if config.get("position_embedding_type", "absolute") != "absolute":
            raise KeyError("position_embedding_type")
        is_mpnet = config["model_type"] == "mpnet"
        graph = _Graph(read_safetensors(file), float(config["layer_norm_eps"]))
    except (KeyError, ValueError, TypeError) as error:
        raise ModelError(f"The configuration of {file} lacks a value, or it is not supported: {error!r}") from error
    ids = opset.parameter([-1, -1], numpy.int64)
    ids.output(0).get_tensor().set_names({"input_ids"})
    length = opset.gather(opset.shape_of(ids), opset.constant(1), opset.constant(0))
    indexes = opset.range(opset.constant(numpy.int64(0)), length, opset.constant(numpy.int64(1)), "i64")
    positions = opset.add(indexes, opset.constant(numpy.int64(first_position(config))))
    value = opset.add(
        graph.rows("embeddings.word_embeddings.weight", ids),
        graph.rows("embeddings.position_embeddings.weight", positions),
    )
    inputs = [ids]
    if not is_mpnet:
        types = graph.weights("embeddings.token_type_embeddings.weight")
        if scores and len(types) > 1:
            inputs.append(opset.parameter([-1, -1], numpy.int64))
            inputs[1].output(0).get_tensor().set_names({"token_type_ids"})
            value = opset.add(value, graph.rows("embeddings.token_type_embeddings.weight", inputs[1]))
        else:
            value = opset.add(value, opset.constant(types[0]))
    value = graph.normalized(value, "embeddings.LayerNorm")
    bias = _relative_bias(graph, indexes, int(config.get("relative_attention_num_buckets", 32))) if is_mpnet else None
    for number in range(layers):
        layer = f"encoder.layer.{number}"
        attention = f"{layer}.attention.attn" if is_mpnet else f"{layer}.attention.self"
        names = ("q", "k", "v") if is_mpnet else ("query", "key", "value")
        parts = [_heads(graph.linear(value, f"{attention}.{name}"), heads) for name in names]
        mixed = _attention(parts, bias)
        output = f"{attention}.o" if is_mpnet else f"{layer}.attention.output.dense"
        norm = f"{layer}.attention.LayerNorm" if is_mpnet else f"{layer}.attention.output.LayerNorm"
        value = graph.normalized(opset.add(graph.linear(mixed, output), value), norm)
        inner = activation(graph.linear(value, f"{layer}.intermediate.dense"))
        value = graph.normalized(
            opset.add(graph.linear(inner, f"{layer}.output.dense"), value), f"{layer}.output.LayerNorm"
        )
    if scores:
        value = opset.gather(value, opset.constant(0), opset.constant(1))
        own = config["model_type"] == "bert"
        value = opset.tanh(graph.linear(value, "pooler.dense" if own else "classifier.dense"))
        value = graph.linear(value, "classifier" if own else "classifier.out_proj")
        value.output(0).get_tensor().set_names({"logits"})
    return openvino.Model([opset.result(value)], inputs, "encoder")


def _heads(value: Any, heads: int) -> Any:
    split = opset.reshape(value, opset.constant([0, 0, heads, -1]), True)
    return opset.transpose(split, opset.constant([0, 2, 1, 3]))


def _attention(parts: list[Any], bias: Any) -> Any:
    query, key, value = parts
    # Without a mask, the CPU plugin reads a zero as one.
    more = () if bias is None else (bias,)
    mixed = opset.scaled_dot_product_attention(query, key, value, *more)
    return opset.reshape(opset.transpose(mixed, opset.constant([0, 2, 1, 3])), opset.constant([0, 0, -1]), True)


_MAX_DISTANCE = 128


def _relative_bias(graph: _Graph, indexes: Any, buckets: int) -> Any:
    """Return MPNet's bias of attention by the distance of two tokens, in T5's buckets: (1, heads, tokens, tokens)."""
    keys = opset.unsqueeze(indexes, opset.constant(0))
    queries = opset.unsqueeze(indexes, opset.constant(1))
    before = opset.subtract(queries, keys)
    half = buckets // 2
    later = opset.multiply(
        opset.convert(opset.less(before, opset.constant(numpy.int64(0))), "i64"), opset.constant(numpy.int64(half))
    )
    distance = opset.abs(before)
    exact = half // 2
    far = opset.convert(opset.maximum(distance, opset.constant(numpy.int64(1))), "f32")
    ratio = opset.divide(
        opset.log(opset.divide(far, opset.constant(numpy.float32(exact)))),
        opset.constant(numpy.float32(math.log(_MAX_DISTANCE / exact))),
    )
    large = opset.add(
        opset.convert(opset.multiply(ratio, opset.constant(numpy.float32(half - exact))), "i64"),
        opset.constant(numpy.int64(exact)),
    )
    large = opset.minimum(large, opset.constant(numpy.int64(half - 1)))
    near = opset.less(distance, opset.constant(numpy.int64(exact)))
    bucket = opset.add(later, opset.select(near, distance, large))
    bias = graph.rows("encoder.relative_attention_bias.weight", bucket)
    return opset.unsqueeze(opset.transpose(bias, opset.constant([2, 0, 1])), opset.constant(0))
