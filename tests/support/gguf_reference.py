"""Computes the logits of a GGUF file with numpy alone, from the `gguf` package's reading of it: one layer at a time."""

from pathlib import Path
from typing import Any

import gguf
import numpy
from numpy.typing import NDArray

Values = NDArray[numpy.float64]


class Reference:
    """A model of the architecture llama, qwen2 or qwen3."""

    def __init__(self, path: Path, *, frequencies: Values | None = None, scale: float | None = None) -> None:
        """``frequencies`` (radians per position) and ``scale`` (of attention scores) replace the plain ones."""
        reader = gguf.GGUFReader(path)
        self._weights: dict[str, Values] = {
            tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float64)
            for tensor in reader.tensors
        }
        keys = {key: field.contents() for key, field in reader.fields.items()}
        self._interleaved = (architecture := keys["general.architecture"]) == "llama"
        own: dict[str, Any] = {key.removeprefix(f"{architecture}."): value for key, value in keys.items()}
        self._layers, self._heads = own["block_count"], own["attention.head_count"]
        self._head = own.get("attention.key_length") or own["embedding_length"] // self._heads
        plain = own["rope.freq_base"] ** -(numpy.arange(0, self._head, 2) / self._head)
        self._frequencies = plain if frequencies is None else frequencies
        self._scale = self._head**-0.5 if scale is None else scale
        self._epsilon = own["attention.layer_norm_rms_epsilon"]

    def logits(self, tokens: list[int], positions: list[int]) -> Values:
        """The logits [token, vocabulary] of the token after each of ``tokens``, which are at ``positions``."""
        hidden = self._weights["token_embd.weight"][tokens]
        for layer in range(self._layers):
            name = f"blk.{layer}"
            normed = self._normed(hidden, f"{name}.attn_norm")
            query, key, value = (self._split(self._product(normed, f"{name}.attn_{one}")) for one in "qkv")
            if f"{name}.attn_q_norm.weight" in self._weights:
                query, key = self._normed(query, f"{name}.attn_q_norm"), self._normed(key, f"{name}.attn_k_norm")
            groups = len(query) // len(key)
            key, value = (numpy.repeat(one, groups, axis=0) for one in (self._rotated(key, positions), value))
            scores = self._rotated(query, positions) @ key.transpose(0, 2, 1) * self._scale
            scores[:, *numpy.triu_indices(len(tokens), 1)] = -numpy.inf
            mixed = (_softmax(scores) @ value).transpose(1, 0, 2).reshape(len(tokens), -1)
            hidden = hidden + self._product(mixed, f"{name}.attn_output")
            normed = self._normed(hidden, f"{name}.ffn_norm")
            gate = self._product(normed, f"{name}.ffn_gate")
            inner = gate / (1 + numpy.exp(-gate)) * self._product(normed, f"{name}.ffn_up")
            hidden = hidden + self._product(inner, f"{name}.ffn_down")
        output = "output" if "output.weight" in self._weights else "token_embd"
        return self._product(self._normed(hidden, "output_norm"), output)

    def _product(self, values: Values, name: str) -> Values:
        product: Values = values @ self._weights[f"{name}.weight"].T
        return product if f"{name}.bias" not in self._weights else product + self._weights[f"{name}.bias"]

    def _normed(self, values: Values, name: str) -> Values:
        mean = (values**2).mean(-1, keepdims=True)
        normed: Values = values / numpy.sqrt(mean + self._epsilon) * self._weights[f"{name}.weight"]
        return normed

    def _split(self, values: Values) -> Values:
        return values.reshape(len(values), -1, self._head).transpose(1, 0, 2)

    def _rotated(self, values: Values, positions: list[int]) -> Values:
        angles = numpy.array(positions)[:, None] * self._frequencies
        cos, sin = numpy.cos(angles), numpy.sin(angles)
        half = self._head // 2
        first, second = (numpy.s_[..., ::2], numpy.s_[..., 1::2]) if self._interleaved else (
            numpy.s_[..., :half], numpy.s_[..., half:]
        )  # fmt: skip
        rotated = numpy.empty_like(values)
        rotated[first] = values[first] * cos - values[second] * sin
        rotated[second] = values[second] * cos + values[first] * sin
        return rotated


def _softmax(scores: Values) -> Values:
    powers = numpy.exp(scores - scores.max(-1, keepdims=True))
    normal: Values = powers / powers.sum(-1, keepdims=True)
    return normal
