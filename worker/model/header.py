"""Decides by the header of a GGUF file whether the model can be served, before anything is loaded.

The tables say what becomes of each key and type: it is applied, has no effect on the numbers, or the file is refused.
OpenVINO GenAI itself ignores what it does not know, and the model computes something else.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from worker.model.files import model_bytes
from worker.model.gguf import Array, GGUFError, Header, Scalar, Tensor, read_header
from worker.model.gguf_tokenizer import SENTENCE_PIECE
from worker.model.pre_tokenizers import PRE_TOKENIZERS
from worker.model.source import ModelError
from worker.model.split import parts

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Architectures that OpenVINO GenAI can build from a GGUF file."""

TOKENIZERS = ("gpt2", SENTENCE_PIECE)
"""The values of ``tokenizer.ggml.model`` that are served."""

_TOKENIZER_NAMES = {"t5": "a Unigram tokenizer", "bert": "a WordPiece tokenizer"}

_READ_TYPES = frozenset({"F16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"})
"""Types of tensors that GenAI reads. It reads F32 and BF16 in vectors, embeddings and the output matrix only."""

_PLAIN_TYPES = frozenset({"F32", "BF16"})
_PLAIN_TENSORS = ("token_embd.weight", "output.weight")

TYPES = ("Q4_K", "Q8_0", "Q6_K", "Q5_K", "BF16", "F16", "F32", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "Q3_K", "Q2_K",
         "IQ4_NL", "IQ4_XS", "MXFP4")  # fmt: skip
"""Types that are served. Files with one that GenAI can't read are converted (:mod:`worker.model.gguf_model`)."""

_F16_FILES = (0, 1)
"""The values of ``general.file_type`` for which GenAI expects no packed tensors."""


class Shape(NamedTuple):
    """What neutral values depend on: the size of a head, and the context length to be served, in tokens."""

    head: int
    context: int


Neutral = Callable[[Any, Shape], bool]
"""Whether a value is the one that the model has without the key."""


def _applied(_value: Scalar, _shape: Shape) -> bool:
    return True


def _positive(value: Scalar, _shape: Shape) -> bool:
    return not isinstance(value, str) and value > 0


def _only(*neutral: Scalar) -> Neutral:
    return lambda value, shape: value in neutral


_APPLIED_KEYS = {
    "context_length", "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.layer_norm_rms_epsilon", "rope.freq_base",
}  # fmt: skip
_UNUSED_KEYS = {
    "feed_forward_length", "vocab_size", "attention.layer_norm_epsilon", "rope.scaling.finetuned",
}  # fmt: skip
"""Without an effect: stated by the shapes of tensors, or not used by these architectures."""

_NUMBERS: dict[str, Neutral] = {
    "rope.scaling.factor": lambda value, shape: value >= 0,
} | dict.fromkeys(
    (
        "rope.scale_linear", "rope.scaling.attn_factor", "rope.scaling.original_context_length",
        "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    ),
    _positive,
)  # fmt: skip
"""Applied (:mod:`worker.model.rope`)."""

_NEUTRAL: dict[str, Neutral] = {
    "rope.scaling.type": _only("none", "linear", "yarn"),
    "attention.causal": _only(True),
    "attention.scale": lambda value, shape: value == 0 or math.isclose(value, shape.head**-0.5, rel_tol=1e-5),
    "attention.value_length": lambda value, shape: value == shape.head,
    "attention.sliding_window": lambda value, shape: value == 0 or value >= shape.context,
    "rope.dimension_count": lambda value, shape: value == shape.head,
    "rope.scaling.yarn_ext_factor": _only(1),
    "rope.scaling.yarn_attn_factor": _only(1),
    "use_parallel_residual": _only(False),
} | dict.fromkeys(("embedding_scale", "logit_scale", "residual_scale"), _only(0, 1)) | dict.fromkeys(
    (
        "attention.clamp_kqv", "attention.max_alibi_bias", "attn_logit_softcapping", "final_logit_softcapping",
        "expert_count", "expert_used_count", "nextn_predict_layers",
    ),
    _only(0),
)  # fmt: skip
"""Refused, unless the value is the one that the model has without the key."""

KEYS: Mapping[str, Neutral] = dict.fromkeys((*_APPLIED_KEYS, *_UNUSED_KEYS), _applied) | _NUMBERS | _NEUTRAL
"""Keys after the name of the architecture, and the values with which a file is served."""

_CHANGES_NUMBERS = re.compile(r"rope\.|attention\.|(^|.*[._])(scale|freqs?\w*|scaling|softcapping|clamp)\b")
"""Keys that are in no table and may change what a model computes."""

_LAYER = re.compile(r"blk\.\d+\.")
_TENSORS = frozenset(
    {"token_embd.weight", "output_norm.weight", "output.weight"}
    | {f"{name}.weight" for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output")}
    | {f"{name}.weight" for name in ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down", "attn_q_norm", "attn_k_norm")}
    | {f"{name}.bias" for name in ("attn_q", "attn_k", "attn_v")}
    | {"rope_freqs.weight", "attn_rot_embd.weight"}  # the second is of the first files of Llama 2; nothing reads it
)
"""Names of tensors, without the number of the layer, that are applied."""

_IR = "Serve the original model as OpenVINO IR: optimum-cli export openvino --model ID FOLDER."


def check_header(file: Path, headers: list[Header], max_context: int = 0) -> tuple[str, ...]:
    """Return warnings about the GGUF file with ``headers``, one for each of its parts.

    ``max_context`` is the context length that the operator asks for, in tokens; 0: the file's. Raises
    :class:`ModelError` if the model can't be served as the file says.
    """
    metadata, arrays = headers[0].metadata, headers[0].arrays
    architecture = str(metadata.get("general.architecture") or "unknown")
    if architecture not in ARCHITECTURES:
        raise ModelError(
            f"{file} has the architecture {architecture}; GGUF files are served of the architectures "
            f"{', '.join(ARCHITECTURES)}. {_IR}"
        )
    if (kind := metadata.get("general.type", "model")) != "model":
        raise ModelError(f"{file} is not a model: its general.type is '{kind}'.")
    tokenizer = str(metadata.get("tokenizer.ggml.model") or "unknown")
    if tokenizer not in TOKENIZERS:
        named = _TOKENIZER_NAMES.get(tokenizer, f"the tokenizer {tokenizer}")
        raise ModelError(f"{file} has {named}; GGUF files are served with those of {', '.join(TOKENIZERS)}. {_IR}")
    pre = metadata.get("tokenizer.ggml.pre") or "default"
    if tokenizer != SENTENCE_PIECE and pre not in PRE_TOKENIZERS:
        raise ModelError(f"{file} can't be served: tokenizer.ggml.pre = '{pre}' is unknown. {_IR}")
    own = own_keys(metadata)
    context = _number(own, "context_length")
    shape = Shape(head_size(own), context=min(filter(None, (context, max_context)), default=0))
    _check_keys(file, own, arrays, architecture, shape)
    _check_tensors(file, {name: tensor for header in headers for name, tensor in header.tensors.items()})
    return tuple(
        f"its key {architecture}.{key} is unknown and may change what the model computes"
        for key in own
        if key not in KEYS and _CHANGES_NUMBERS.match(key)
    )


def own_keys(metadata: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the keys of the architecture, without its name."""
    prefix = f"{metadata.get('general.architecture')}."
    return {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}


def head_size(own: Mapping[str, Scalar]) -> int:
    """Return the size of a head; ``own`` are the keys of the architecture."""
    stated = _number(own, "attention.key_length")
    return stated or _number(own, "embedding_length") // max(1, _number(own, "attention.head_count")) or 1


def genai_reads(headers: Sequence[Header]) -> bool:
    """Return whether OpenVINO GenAI reads the tensors of the file with ``headers``, one for each of its parts."""
    matrices, plain = set[str](), set[str]()
    for header in headers:
        for name, tensor in header.tensors.items():
            kinds = plain if len(tensor.shape) == 1 or name in _PLAIN_TENSORS else matrices
            kinds.add(tensor.type_name)
    file_type = headers[0].metadata.get("general.file_type")
    read = {"F16"} if file_type in _F16_FILES else _READ_TYPES
    return file_type is not None and matrices <= read and plain <= read | _PLAIN_TYPES


def loaded_bytes(path: Path) -> int:
    """Return about how many bytes a model's weights take when they are loaded, GGUF types that GenAI can't read as the
    int8 that they become by default. Engines rearrange some."""
    size = model_bytes(path)
    with suppress(GGUFError, OSError):
        if path.suffix == ".gguf" and not genai_reads(headers := [read_header(part) for part in parts(path)]):
            size = sum(math.prod(tensor.shape) for header in headers for tensor in header.tensors.values())
    return size * 3 // 2


def _number(own: Mapping[str, Scalar], key: str) -> int:
    value = own.get(key, 0)
    return value if isinstance(value, int) else 0


def _check_keys(
    file: Path, own: Mapping[str, Scalar], arrays: Mapping[str, Array], architecture: str, shape: Shape
) -> None:
    for key, neutral in KEYS.items():
        full = f"{architecture}.{key}"
        if key in own and not _is_neutral(neutral, own[key], shape):
            raise ModelError(f"{file} can't be served: {full} = {own[key]!r} is not applied. {_IR}")
        if full in arrays and key != "feed_forward_length":
            raise ModelError(f"{file} can't be served: {full} differs between layers. {_IR}")


def _is_neutral(neutral: Neutral, value: Scalar, shape: Shape) -> bool:
    try:
        return neutral(value, shape)
    except TypeError:  # a text in place of a number
        return False


def _check_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if _LAYER.sub("", name) not in _TENSORS:
            raise ModelError(f"{file} can't be served: its tensor {name} is not applied. {_IR}")
        if tensor.type_name not in TYPES:
            raise ModelError(
                f"{file} can't be served: its tensor {name} has the type {tensor.type_name}. "
                f"The types {', '.join(TYPES)} are. Get a file with one of them. {_IR}"
            )
