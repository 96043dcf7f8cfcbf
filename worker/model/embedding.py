"""What the files of an embedding model or of a reranker say: weights, pooling, further layers, prompts and limits.

The files are those of sentence-transformers (https://sbert.net/docs/sentence_transformer/usage/custom_models.html):
``modules.json`` lists the modules of the model, each with a folder of its own. A folder without it that has an encoder
of text is pooled by the mean, as sentence-transformers does. A reranker is a cross-encoder: it classifies pairs of
texts.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from worker.model.files import NO_LIMIT, read_config
from worker.model.source import ModelError

Kind = Literal["generate", "embed", "rerank"]
"""What a model does: the tags of the kinds of work (:data:`shared.protocol.request.Work`)."""

Pooling = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]

TokenArrays = Literal["accept", "cl100k"]


class VectorSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model's entry in a catalogue has instead of its files; ``None`` and 0 are theirs.

    - ``max_tokens``: maximum length of a text, special tokens included; at most the model's positions.
    - ``token_arrays``: whose token ids are if the request does not say so: this model's, or those of OpenAI's
      ``cl100k_base``, which become text again. Otherwise, they are refused.
    - ``truncate``: texts that are too long are cut, whatever the request says.
    - ``idle``: the engine computes only while no other process needs the CPU.
    """

    pooling: Pooling | None = None
    normalize: bool | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None
    max_tokens: int = 0
    token_arrays: TokenArrays | None = None
    truncate: bool = False
    idle: bool = False


OWN = VectorSettings()
"""All as in the files."""

MODULES = "modules.json"
SAFETENSORS, IR, ONNX = "model.safetensors", "openvino_model.xml", "model.onnx"
_WEIGHTS = (IR, f"openvino/{IR}", SAFETENSORS, ONNX, f"onnx/{ONNX}")
"""Files of weights, the first choice first."""

_ENCODERS = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "mpnet"})
"""Values of ``model_type`` whose safetensors are read (:mod:`worker.embed.encoder`)."""

_GENERATE = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
"""Endings of the architectures of models that generate text."""

_RERANK = "ForSequenceClassification"
"""Ending of the architectures of rerankers."""

_POOLING: Mapping[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Fields of the configuration of older versions, in the order in which their vectors are joined."""

_ACTIVATIONS = frozenset({"Identity", "Tanh", "ReLU", "GELU", "Sigmoid"})


class Dense(NamedTuple):
    """A linear layer behind the pooling. ``weights`` is a safetensors file."""

    weights: Path
    activation: str
    width: int


class EmbeddingFiles(NamedTuple):
    """An embedding model. ``max_tokens`` is the maximum length of a text, special tokens included."""

    folder: Path
    weights: Path
    config: dict[str, Any]
    max_tokens: int
    pooling: tuple[Pooling, ...]
    dense: tuple[Dense, ...]
    normalize: bool
    lowercase: bool
    prompts: dict[str, str]
    """Prefixes of texts by name: "query" and "document", or others."""
    default_prompt: str
    """What each text begins with if the client names no prompt."""
    dimensions: Sequence[int]
    """The lengths that vectors may have: the model's own, and those to which they may be cut."""
    scores: str
    """A reranker's activation, ``Sigmoid`` or ``Identity``; empty for a model that computes vectors."""


def kind_of(folder: Path) -> Kind:
    """Return what the model in ``folder`` does, by its files. Raises :class:`ModelError`."""
    if not folder.is_dir() or (weights := _weights(folder)) is None:
        return "generate"
    config = read_config(folder / "config.json")
    architectures = [str(name) for name in config.get("architectures") or ()]
    if any(name.endswith(_RERANK) for name in architectures):
        return "rerank"
    if (folder / MODULES).is_file():
        return "embed"
    if any(name.endswith(_GENERATE) for name in architectures):
        # Decoders are exported for vectors without logits.
        return "embed" if weights.suffix == ".xml" and _has_vectors(weights, weights.stat().st_mtime_ns) else "generate"
    return "embed" if config.get("model_type") in _ENCODERS else "generate"


@lru_cache(maxsize=32)
def _has_vectors(weights: Path, changed: int) -> bool:
    """Return whether an IR that was last ``changed`` at this time has the vectors of tokens: it is long."""
    return b'"last_hidden_state"' in weights.read_bytes()


def read_files(folder: Path, given: VectorSettings = OWN) -> EmbeddingFiles:
    """Return what the files in ``folder`` say, unless it is ``given``.

    Raises :class:`ModelError` for what is missing or not supported.
    """
    weights = _weights(folder)
    if weights is None:
        raise ModelError(f"{folder} has no weights of an embedding model: {', '.join(_WEIGHTS)}.")
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(
            f"{folder} has no tokenizer.json. Write it with AutoTokenizer.from_pretrained(...).save_pretrained(...)."
        )
    config, ranks = read_config(folder / "config.json"), kind_of(folder) == "rerank"
    if weights.name == SAFETENSORS and config.get("model_type") not in _ENCODERS:
        raise ModelError(
            f"The weights {weights} of the kind {config.get('model_type')!r} can't be read. Known are "
            f"{', '.join(sorted(_ENCODERS))}; export others: optimum-cli export openvino --task feature-extraction."
        )
    modules = [] if ranks else _modules(folder)
    if not (ranks or modules or given.pooling or config.get("model_type") in _ENCODERS):
        raise ModelError(f"{folder} states no pooling. Set 'pooling' in models.toml, or add {MODULES}.")
    transformer, dense, normalize = folder, [], False
    pooling: tuple[Pooling, ...] = ("mean",)
    for kind, place in modules:
        match kind:
            case "Transformer":
                transformer = place
            case "Pooling":
                pooling = _pooling(place)
            case "Dense":
                dense.append(_dense(place))
            case "Normalize":
                normalize = True
            case _:
                raise ModelError(f"{folder / MODULES} has a module {kind}, which is not supported.")
    settings = read_config(transformer / "sentence_bert_config.json")
    texts = read_config(folder / "config_sentence_transformers.json")
    prompts = {name: text for name, text in (texts.get("prompts") or {}).items() if isinstance(text, str) and text}
    prefixes = {"query": given.query_prefix, "document": given.document_prefix}
    prompts |= {name: text for name, text in prefixes.items() if text is not None}
    if ranks and (given.pooling or given.normalize is not None):
        raise ModelError(f"{folder} scores pairs of texts: 'pooling' and 'normalize' are of models with vectors.")
    pooling = (given.pooling,) if given.pooling else pooling
    return EmbeddingFiles(
        folder,
        weights,
        config,
        _max_tokens(folder, config, settings, given.max_tokens),
        pooling,
        tuple(dense),
        normalize if given.normalize is None else given.normalize,
        bool(settings.get("do_lower_case")),
        prompts,
        prompts.get(texts.get("default_prompt_name") or "", ""),
        _dimensions(config, dense[-1].width if dense else int(config.get("hidden_size") or 0) * len(pooling)),
        _score(folder, config, texts) if ranks else "",
    )


def _score(folder: Path, config: Mapping[str, Any], texts: Mapping[str, Any]) -> str:
    """Return the activation of a reranker, which sentence-transformers writes in one of three places."""
    named = (config.get("sentence_transformers") or texts).get("activation_fn")
    named = str(named or config.get("sbert_ce_default_activation_function") or "Sigmoid").rpartition(".")[2]
    if named not in ("Sigmoid", "Identity"):
        raise ModelError(f"{folder / 'config.json'} has the activation {named} of scores, which is not supported.")
    return named


def _dimensions(config: Mapping[str, Any], width: int) -> Sequence[int]:
    """Return the lengths of vectors. Models trained for several (Matryoshka) say so as vLLM has it."""
    if listed := config.get("matryoshka_dimensions"):
        return tuple(sorted({*(int(length) for length in listed if 0 < int(length) <= width), width}))
    return range(1, width + 1) if config.get("is_matryoshka") else (width,)


def _weights(folder: Path) -> Path | None:
    return next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Return the kind and the folder of each module."""
    if not (folder / MODULES).is_file():
        return []
    try:
        found = msgspec.json.decode((folder / MODULES).read_bytes(), type=list[dict[str, Any]])
        return [(str(one["type"]).rpartition(".")[2], folder / str(one["path"])) for one in found]
    except (msgspec.DecodeError, OSError, KeyError) as error:
        raise ModelError(f"{folder / MODULES} can't be read: {error!r}") from error


def _pooling(place: Path) -> tuple[Pooling, ...]:
    config = read_config(place / "config.json")
    if config.get("include_prompt") is False:
        raise ModelError(f"{place / 'config.json'} leaves prompts out of the pooling, which is not supported.")
    named = config.get("pooling_mode")
    names = [named] if isinstance(named, str) else named or [to for key, to in _POOLING.items() if config.get(key)]
    known: tuple[Pooling, ...] = get_args(Pooling)
    found = tuple(one for name in names for one in known if one == name)
    if not found or len(found) < len(names):
        raise ModelError(f"{place / 'config.json'} names no pooling that is supported: {', '.join(known)}.")
    return found


def _dense(place: Path) -> Dense:
    config = read_config(place / "config.json")
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if activation not in _ACTIVATIONS or not (place / SAFETENSORS).is_file():
        raise ModelError(f"{place}: its activation is not supported, or it has no {SAFETENSORS}.")
    return Dense(place / SAFETENSORS, activation, int(config.get("out_features") or 0))


def _max_tokens(folder: Path, config: Mapping[str, Any], settings: Mapping[str, Any], given: int) -> int:
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and first_position(config):
        positions -= first_position(config)
    tokenizer = read_config(folder / "tokenizer_config.json").get("model_max_length")
    own = given or settings.get("max_seq_length")
    limits = [own, positions] if isinstance(own, int) else [positions, tokenizer]
    known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < NO_LIMIT]
    if not known:
        raise ModelError(f"The maximum length of texts is unknown: no configuration in {folder} states it.")
    return min(known)


def first_position(config: Mapping[str, Any]) -> int:
    """Return the index of the first token's position: RoBERTa's kind and MPNet count from behind the padding's id."""
    return int(config.get("pad_token_id") or 0) + 1 if config.get("model_type") in _ENCODERS - {"bert"} else 0
