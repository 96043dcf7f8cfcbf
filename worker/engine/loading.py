"""Loads the pipeline of a model, with a logits tap if possible, warms it up and describes it."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import openvino
import openvino_genai

from worker.engine.fingerprint import fingerprint_of
from worker.engine.grammar_compiler import GrammarCompiler
from worker.engine.interface import EngineInfo, EngineLoadError
from worker.engine.logits.availability import tapped_model
from worker.engine.logits.operation import TapFailed
from worker.engine.options import EngineOptions
from worker.engine.pipeline import load_pipeline
from worker.engine.served_weights import serving_path
from worker.engine.speculation import speculation_of
from worker.engine.text import Vocabulary
from worker.engine.warm_up import warm_up
from worker.model.defaults import default_fields
from worker.model.devices import device_kind, is_missing
from worker.model.files import model_bytes
from worker.model.local import ModelError
from worker.model.vision import LANGUAGE_MODEL, sees_images

logger = logging.getLogger(__name__)

WARM_UP_ID = 0
"""Id of the warm-up's request."""


def check_available(options: EngineOptions) -> None:
    """Raise :class:`EngineLoadError` unless the model and the device of ``options`` exist."""
    if not Path(options.path).exists():
        raise EngineLoadError(f"there is no model at {options.path}: give a GGUF file or an OpenVINO IR folder")
    if device_kind(options.device) == "NPU":
        raise EngineLoadError(
            "NPU: not yet. OpenVINO GenAI has no pipeline with a paged KV cache for NPUs: use --device CPU or GPU"
        )
    available = openvino.Core().available_devices
    if is_missing(options.device, available):
        raise EngineLoadError(
            f"there is no device {options.device} here: OpenVINO finds {', '.join(available) or 'none'}. "
            "How to give a worker a GPU is in docs/deployment.md"
        )


def served_path(options: EngineOptions, progress: Callable[[str], None]) -> Path:
    """Return the path of the weights to load. Raises :class:`EngineLoadError`."""
    try:
        return serving_path(options, progress)
    except (ModelError, OSError, RuntimeError) as error:
        raise EngineLoadError(f"int8 weights of {options.path} can't be made: {error}") from error


class LoadedPipeline(NamedTuple):
    """A pipeline that is ready. ``cache_tokens`` is the KV cache's capacity, ``logits_width`` the number of logits
    per token; 0 if they can't be read. ``sees_images`` is set for a vision-language model. Without ``grammars``, the
    pipeline compiles them in its steps."""

    pipeline: openvino_genai.ContinuousBatchingPipeline
    vocabulary: Vocabulary
    cache_tokens: int
    logits_width: int
    sees_images: bool
    grammars: GrammarCompiler | None


def load(options: EngineOptions, served: Path, progress: Callable[[str], None]) -> LoadedPipeline:
    """Load the model at ``served`` and run one request. Raises :class:`EngineLoadError`.

    If the logits tap does not pass its test, the model is loaded without one, unless ``options.logits`` is on.
    """
    if sees_images(served) and speculation_of(options) != "none":
        raise EngineLoadError("speculative decoding can't be combined with a vision-language model")
    progress(f"loading {served.name} ({model_bytes(served) / 1e6:.0f} MB) on {options.device}")
    tapped = tapped_model(options, served)
    if tapped is None:
        return _load(options, served, None, progress)
    try:
        return _load(options, served, tapped, progress)
    except TapFailed as error:
        if options.logits == "on":
            raise EngineLoadError(f"the model can't be loaded with access to its logits: {error}") from error
        failure = str(error)
    # Not inside the block above: its exception refers to the first pipeline, which must be freed.
    loaded = _load(options, served, None, progress)
    logger.warning("fields that need logits are not served: %s", failure)
    return loaded


def describe(options: EngineOptions, served: Path, loaded: LoadedPipeline, started: float) -> EngineInfo:
    """Hash the model at ``options.path`` and return the properties of its engine.

    ``started`` is when loading started (``time.monotonic``).
    """
    path = Path(options.path)
    fingerprint = fingerprint_of(path, options, converted=served != path)
    fields = default_fields(path)
    defaults = loaded.pipeline.get_config()
    temperature = defaults.temperature if defaults.do_sample else 0.0
    tokenizer = loaded.pipeline.get_tokenizer()
    template = options.chat_template or tokenizer.get_original_chat_template() or tokenizer.chat_template
    return EngineInfo(
        context_length=options.context_length,
        cache_tokens=loaded.cache_tokens,
        slots=options.slots(loaded.cache_tokens),
        fingerprint=fingerprint,
        device=options.device,
        load_seconds=time.monotonic() - started,
        default_fields=tuple(sorted(fields)),
        temperature=temperature if "temperature" in fields else None,
        top_p=defaults.top_p if "top_p" in fields else None,
        logits=loaded.logits_width > 0,
        vocabulary=loaded.vocabulary.digest(template),
    )


def _load(options: EngineOptions, served: Path, tapped: Path | None, progress: Callable[[str], None]) -> LoadedPipeline:
    pipeline, vocabulary = load_pipeline(options, served, tapped)
    progress("warming up")
    speculation = speculation_of(options)
    with_images = sees_images(served)
    cache_tokens, width = warm_up(
        pipeline, WARM_UP_ID, vocabulary, speculation, tapped=tapped is not None, sees_images=with_images
    )
    if not options.cache_size:
        cache_tokens = options.context_length * options.max_batch  # the cache grows as the batch requires
    # Without a tap, only an IR declares the number of logits.
    logits = width or _declared_width(served)
    grammars = GrammarCompiler(pipeline.get_tokenizer(), logits) if logits else None
    return LoadedPipeline(pipeline, vocabulary, cache_tokens, width, with_images, grammars)


def _declared_width(served: Path) -> int:
    """Return the number of logits per token that an IR declares; 0 if it does not."""
    file = served / (LANGUAGE_MODEL if sees_images(served) else "openvino_model.xml")
    if not file.is_file():
        return 0
    shape = openvino.Core().read_model(file).output(0).get_partial_shape()
    return int(shape[-1].get_length()) if shape[-1].is_static else 0
