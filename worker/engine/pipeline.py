"""Creates OpenVINO GenAI's pipeline with the properties for its device and weights."""

from pathlib import Path

import openvino_genai

from shared.runtime.plugin_config import PluginValue
from worker.engine.detokenizer import open_tokenizer
from worker.engine.interface import EngineLoadError
from worker.engine.logits.operation import TapFailed, extension
from worker.engine.options import EngineOptions
from worker.engine.recovery import native_message
from worker.engine.speculation import properties as speculation_properties
from worker.engine.text import Vocabulary
from worker.model.devices import device_kind
from worker.model.files import read_properties

_PROPERTIES = {"CPU": {"KEY_CACHE_QUANT_MODE": "BY_TOKEN"}}
"""Properties by device kind that replace OpenVINO's defaults. With key quantisation by channel, the CPU default, each
new token rescales the keys of its whole block: 5 to 9 % of a step (docs/benchmarks/2026-11-weights-and-tuning.md)."""

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0, "KV_CACHE_PRECISION": "f32"}
"""Properties that make a text independent of the rest of the batch, and of migration. An f16 KV cache amplifies
differences between kernels: 1 of 24 texts differed in a batch from the same text alone; with f32, none."""


def load_pipeline(
    options: EngineOptions, path: Path, tapped: Path | None = None
) -> tuple[openvino_genai.ContinuousBatchingPipeline, Vocabulary]:
    """Return the pipeline and the vocabulary of the model at ``path``. Raises :class:`EngineLoadError`.

    ``tapped`` is the folder of the same model with a logits tap, to be loaded in its place. If OpenVINO can't load it,
    raises :class:`TapFailed`.
    """
    scheduler = scheduler_config(options)
    try:
        properties = (
            device_properties(path, options)
            | speculation_properties(options)
            | (EXACT if options.precision == "exact" else {})
            | ({"extensions": [extension()]} if tapped else {})
        )
        tokenizer, vocabulary = open_tokenizer(path)
    except EngineLoadError:
        raise
    except Exception as error:
        raise EngineLoadError(_failure(path, options, error)) from error
    try:
        pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(tapped or path), tokenizer, scheduler, options.device, **properties
        )
        return pipeline, vocabulary
    except Exception as error:
        if tapped:
            raise TapFailed(_failure(tapped, options, error)) from error
        raise EngineLoadError(_failure(path, options, error)) from error


def _failure(path: Path, options: EngineOptions, error: Exception) -> str:
    return f"OpenVINO can't load {path} on {options.device}: {native_message(error)}"


def scheduler_config(options: EngineOptions) -> openvino_genai.SchedulerConfig:
    """Return the configuration of the pipeline's scheduler."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = options.cache_size
    scheduler.max_num_seqs = options.max_batch
    scheduler.max_num_batched_tokens = max(options.prefill_tokens, 2 * options.max_batch)
    scheduler.enable_prefix_caching = options.prefix_caching
    return scheduler


def device_properties(path: Path, options: EngineOptions) -> dict[str, PluginValue]:
    """Return the device's properties. Precedence: the operator's, then those of the weights, then our defaults."""
    # An f32 cache is not quantised.
    defaults = _PROPERTIES.get(device_kind(options.device), {}) if options.precision == "fast" else {}
    return defaults | read_properties(path, options.device) | options.plugin_config
