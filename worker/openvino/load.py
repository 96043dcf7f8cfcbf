"""Loads the pipeline of a model: its weights, with a logits hook if possible, its properties and its fingerprint."""

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import openvino
import openvino_genai

from shared.runtime.plugin_config import PluginValue
from worker.engine.protocol import EngineInfo, EngineKind, EngineLoadError
from worker.engine.text import Vocabulary
from worker.model.chat_template import own_templates
from worker.model.devices import device_kind, is_missing
from worker.model.files import LANGUAGE_MODEL, model_bytes, read_properties, sees_images
from worker.model.identity import model_identity
from worker.openvino.checks import MAX_ASSISTANT_TOKENS
from worker.openvino.grammar_compiler import GrammarCompiler
from worker.openvino.logits.graph import hooked_model
from worker.openvino.logits.operation import HookFailed, extension
from worker.openvino.npu import StaticShape, npu_properties
from worker.openvino.options import OpenVINOOptions
from worker.openvino.recovery import native_message
from worker.openvino.sampling import speculation_properties
from worker.openvino.stateful import Pipeline, StatefulPipeline, load_vision
from worker.openvino.threads import engine_threads
from worker.openvino.vocabulary import open_tokenizer
from worker.openvino.warm_up import warm_up

logger = logging.getLogger(__name__)

WARM_UP_ID = 0
"""Id of the warm-up's request."""


def check_available(options: OpenVINOOptions) -> tuple[str, ...]:
    """Return OpenVINO's devices. Raises :class:`EngineLoadError` unless the model and the device exist."""
    if not Path(options.path).exists():
        raise EngineLoadError(f"there is no model at {options.path}: give a GGUF file or an OpenVINO IR folder")
    available = openvino.Core().available_devices
    if is_missing(options.device, available):
        raise EngineLoadError(
            f"there is no device {options.device} here: OpenVINO finds {', '.join(available) or 'none'}. "
            "How to give a worker a GPU or an NPU is in docs/deployment.md"
        )
    return tuple(available)


class EngineChoice(NamedTuple):
    """The engine to load a model with, and why, human-readable."""

    kind: EngineKind
    reason: str


def choose(options: OpenVINOOptions) -> EngineChoice:
    """Return the engine for the device, unless the settings name one. Raises :class:`EngineLoadError`."""
    on_npu = device_kind(options.device) == "NPU"
    if options.engine == "stateful":
        return EngineChoice("stateful", "the setting --engine")
    if options.engine == "batched":
        if on_npu:
            raise EngineLoadError("OpenVINO GenAI has no pipeline with a paged KV cache for NPUs: use --engine auto")
        return EngineChoice("batched", "the setting --engine")
    if on_npu:
        return EngineChoice("stateful", "OpenVINO GenAI has no pipeline with a paged KV cache for NPUs")
    return EngineChoice("batched", "the default")


class LoadedPipeline(NamedTuple):
    """A pipeline that is ready. ``cache_tokens`` is the KV cache's capacity, ``logits_width`` the number of logits
    per token; 0 if they can't be read. ``sees_images`` is set for a vision-language model. Without ``grammars``, the
    pipeline compiles them in its steps. ``shape`` is set on an NPU."""

    choice: EngineChoice
    pipeline: Pipeline
    vocabulary: Vocabulary
    cache_tokens: int
    logits_width: int
    sees_images: bool
    grammars: GrammarCompiler | None
    shape: StaticShape | None


def load_model(options: OpenVINOOptions, served: Path, progress: Callable[[str], None]) -> LoadedPipeline:
    """Load the model at ``served`` and run one request. Raises :class:`EngineLoadError`.

    If OpenVINO can't load an IR folder in the batched engine that was chosen by default, for instance because its
    attention is not fused, it is loaded in the stateful one.
    """
    choice = choose(options)
    if sees_images(served) and options.speculation != "none":
        raise EngineLoadError("speculative decoding can't be combined with a vision-language model")
    if options.draft_model and Path(options.path).is_file():
        raise EngineLoadError("a GGUF file has no draft model: convert it (docs/deployment.md), or use --prompt-lookup")
    size, threads = model_bytes(served) / 1e6, engine_threads(options).description
    progress(f"loading {served.name} ({size:.0f} MB) on {options.device}{threads}")
    try:
        return _load_with_logits(options, served, choice, progress)
    except PipelineRefused as error:
        suits = served.is_dir() and options.speculation == "none"
        if options.engine in ("batched", "stateful") or choice.kind == "stateful" or not suits:
            raise
        choice = EngineChoice("stateful", f"the batched engine can't load the model: {error.reason}")
    # Not inside the block above: its exception may refer to the first pipeline, which must be freed.
    return _load_with_logits(options, served, choice, progress)


def _load_with_logits(
    options: OpenVINOOptions, served: Path, choice: EngineChoice, progress: Callable[[str], None]
) -> LoadedPipeline:
    """Load the model with a logits hook if possible.

    If the hook does not pass its test, the model is loaded without one, unless ``options.logits`` is on.
    """
    if choice.kind == "stateful" and options.speculation != "none":
        raise EngineLoadError("the stateful engine does not speculate: omit --draft-model and --prompt-lookup")
    hooked = hooked_model(options, served, paged=choice.kind == "batched")
    if hooked is None:
        return _load(options, served, None, choice, progress)
    try:
        return _load(options, served, hooked, choice, progress)
    except HookFailed as error:
        if options.logits == "on":
            raise EngineLoadError(f"the model can't be loaded with access to its logits: {error}") from error
        failure = str(error)
    # Not inside the block above: its exception refers to the first pipeline, which must be freed.
    loaded = _load(options, served, None, choice, progress)
    logger.warning("fields that need logits are not served: %s", failure)
    return loaded


def describe(
    options: OpenVINOOptions, served: Path, loaded: LoadedPipeline, started: float, devices: tuple[str, ...]
) -> EngineInfo:
    """Hash the model at ``options.path`` and return the properties of its engine.

    ``devices`` are those of the host. ``started`` is when loading started (``time.monotonic``).
    """
    path = Path(options.path)
    fingerprint = fingerprint_of(path, options, converted="-int8-" in served.name, kind=loaded.choice.kind)
    tokenizer = loaded.pipeline.get_tokenizer()
    own = own_templates(path)
    template = (
        options.chat_template
        or own.default + own.tool_use
        or tokenizer.get_original_chat_template()
        or tokenizer.chat_template
    )
    return EngineInfo(
        context_length=min(options.context_length, loaded.shape.context) if loaded.shape else options.context_length,
        cache_tokens=loaded.cache_tokens,
        slots=options.slots(loaded.cache_tokens) if loaded.choice.kind == "batched" else 1,
        fingerprint=fingerprint,
        device=options.device,
        load_seconds=time.monotonic() - started,
        logits=loaded.logits_width > 0,
        adjusts_logits=loaded.logits_width > 0 and options.speculation == "none",
        vocabulary=loaded.vocabulary.digest(template + options.prompts),
        devices=devices,
        engine=loaded.choice.kind,
        reason=loaded.choice.reason,
        max_prompt=loaded.shape.prompt if loaded.shape else 0,
        prefix_caching=options.prefix_caching and loaded.choice.kind == "batched",
    )


def _load(
    options: OpenVINOOptions, served: Path, hooked: Path | None, choice: EngineChoice, progress: Callable[[str], None]
) -> LoadedPipeline:
    shape = options.shape
    pipeline, vocabulary = load_pipeline(options, served, hooked, choice.kind)
    progress("warming up")
    with_images = sees_images(served)
    cache_tokens, width = warm_up(
        pipeline, WARM_UP_ID, vocabulary, options, hooked=hooked is not None, images=with_images
    )
    if choice.kind == "stateful":
        cache_tokens = min(options.context_length, shape.context if shape else options.context_length)
    elif not options.cache_size:
        cache_tokens = options.context_length * options.max_batch  # the cache grows as the batch requires
    # Without a hook, only an IR declares the number of logits.
    logits = width or _declared_width(served)
    compiles = logits and choice.kind == "batched"  # the stateful one stops nobody while it compiles
    grammars = GrammarCompiler(pipeline.get_tokenizer(), logits) if compiles else None
    return LoadedPipeline(choice, pipeline, vocabulary, cache_tokens, width, with_images, grammars, shape)


def _declared_width(served: Path) -> int:
    """Return the number of logits per token that an IR declares; 0 if it does not."""
    file = served / (LANGUAGE_MODEL if sees_images(served) else "openvino_model.xml")
    if not file.is_file():
        return 0
    shape = openvino.Core().read_model(file).output(0).get_partial_shape()
    return int(shape[-1].get_length()) if shape[-1].is_static else 0


_PROPERTIES = {"CPU": {"KEY_CACHE_QUANT_MODE": "BY_TOKEN"}}
"""Properties by device kind that replace OpenVINO's defaults. With key quantisation by channel, the CPU default, each
new token rescales the keys of its whole block: 5 to 9 % of a step (docs/benchmarks/2026-11-weights-and-tuning.md)."""

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0, "KV_CACHE_PRECISION": "f32"}
"""Properties that make a text independent of the rest of the batch, and of migration. An f16 KV cache amplifies
differences between kernels: 1 of 24 texts differed in a batch from the same text alone; with f32, none."""


class PipelineRefused(EngineLoadError):
    """OpenVINO can't make a pipeline of the model's files. ``reason`` is its own message."""

    def __init__(self, path: Path, options: OpenVINOOptions, error: Exception) -> None:
        super().__init__(_failure(path, options, error))
        self.reason = native_message(error)


def load_pipeline(
    options: OpenVINOOptions, path: Path, hooked: Path | None = None, kind: EngineKind = "batched"
) -> tuple[Pipeline, Vocabulary]:
    """Return the pipeline and the vocabulary of the model at ``path``.

    Raises :class:`EngineLoadError`; :class:`PipelineRefused` if OpenVINO can load the tokenizer only.

    ``hooked`` is the folder of the same model with a logits hook, to be loaded in its place. If OpenVINO can't load it,
    raises :class:`HookFailed`.
    """
    try:
        properties = (
            engine_threads(options).properties
            | _kind_properties(options, kind)
            | device_properties(path, options)
            | speculation_properties(options)
            | (EXACT if options.precision == "exact" else {})
            | ({"extensions": [extension()]} if hooked else {})
        )
        tokenizer, vocabulary = open_tokenizer(Path(options.path))
    except EngineLoadError:
        raise
    except Exception as error:
        raise EngineLoadError(_failure(path, options, error)) from error
    model = str(hooked or path)
    try:
        if kind == "stateful":
            if sees_images(path):
                vlm, weights = load_vision(hooked or path, tokenizer, options.device, properties)
                return StatefulPipeline(vlm, options.context_length, weights), vocabulary
            llm = openvino_genai.LLMPipeline(model, tokenizer, options.device, **properties)
            return StatefulPipeline(llm, options.context_length), vocabulary
        scheduler = scheduler_config(options)
        return (
            openvino_genai.ContinuousBatchingPipeline(model, tokenizer, scheduler, options.device, **properties),
            vocabulary,
        )
    except Exception as error:
        if hooked:
            raise HookFailed(_failure(hooked, options, error)) from error
        raise PipelineRefused(path, options, error) from error


def _kind_properties(options: OpenVINOOptions, kind: EngineKind) -> dict[str, PluginValue]:
    """Return the properties that an engine needs on its device. Raises :class:`EngineLoadError`."""
    if kind == "stateful" and options.shape:
        return npu_properties(options.plugin_config, options.precision)
    return {"ATTENTION_BACKEND": "SDPA"} if kind == "stateful" else {}


def _failure(path: Path, options: OpenVINOOptions, error: Exception) -> str:
    draft = f" with the draft model {options.draft_model}" if options.draft_model else ""
    return f"OpenVINO can't load {path} on {options.device}{draft}: {native_message(error)}"


def scheduler_config(options: OpenVINOOptions) -> openvino_genai.SchedulerConfig:
    """Return the configuration of the pipeline's scheduler."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = options.cache_size
    scheduler.max_num_seqs = options.max_batch
    scheduler.max_num_batched_tokens = max(options.prefill_tokens, 2 * options.max_batch)
    if options.draft_model:
        drafted = options.max_batch * (1 + MAX_ASSISTANT_TOKENS)
        scheduler.max_num_batched_tokens = max(options.prefill_tokens, drafted)
    if options.speculation == "draft":
        # Of prompts in parts, a draft model reads more than the model has, and what it drafts then is not verified.
        scheduler.dynamic_split_fuse = False
        scheduler.max_num_batched_tokens = max(options.context_length, drafted)
    scheduler.enable_prefix_caching = options.prefix_caching
    return scheduler


def device_properties(path: Path, options: OpenVINOOptions) -> dict[str, PluginValue]:
    """Return the device's properties. Precedence: the operator's, then those of the weights, then our defaults."""
    # An f32 cache is not quantised.
    defaults = _PROPERTIES.get(device_kind(options.device), {}) if options.precision == "fast" else {}
    return defaults | read_properties(path, options.device) | options.plugin_config


def fingerprint_of(path: Path, options: OpenVINOOptions, *, converted: bool, kind: EngineKind = "batched") -> str:
    """Return the fingerprint of the model at ``path``; ``converted``: it is served with int8 weights made from it."""
    parts = (
        openvino.__version__,
        openvino_genai.__version__,
        model_identity(path),
        options.device,
        options.precision,
        str(sorted(device_properties(path, options).items())),
        "int8" if converted else "original",
        options.chat_template,
        kind,
    )
    return "fp_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]
