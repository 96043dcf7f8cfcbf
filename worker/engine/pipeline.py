"""OpenVINO GenAI's pipeline for a model, with the properties that suit its device and its weights."""

from pathlib import Path

import openvino_genai

from shared.runtime.settings import PluginValue
from worker.engine.detokenizer import open_tokenizer
from worker.engine.devices import device_kind
from worker.engine.interface import EngineLoadError
from worker.engine.model_files import stated_properties
from worker.engine.options import EngineOptions
from worker.engine.recovery import last_line
from worker.engine.speculation import properties as speculation_properties
from worker.engine.text import Vocabulary

_PROPERTIES = {"CPU": {"KEY_CACHE_QUANT_MODE": "BY_TOKEN"}}
"""Properties by kind of device, in place of OpenVINO's own. By channel, as its CPU device has it, each new token has
the keys of its whole block scaled anew: up to 5 % of a step, and 9 % behind 1,300 tokens (docs/performance.md)."""

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0, "KV_CACHE_PRECISION": "f32"}
"""With these properties a text does not depend on what else is in the batch, nor on being resumed. A KV cache in f16
rounds tiny differences between kernels up: 1 of 24 texts came out different in a batch than alone; in f32, none."""


def load_pipeline(options: EngineOptions, path: Path) -> tuple[openvino_genai.ContinuousBatchingPipeline, Vocabulary]:
    """Return the pipeline and the vocabulary of the model at ``path``. Raises :class:`EngineLoadError`."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = options.cache_size
    scheduler.max_num_seqs = options.max_batch
    scheduler.max_num_batched_tokens = max(options.prefill_tokens, 2 * options.max_batch)
    scheduler.enable_prefix_caching = options.prefix_caching
    try:
        properties = (
            device_properties(path, options)
            | speculation_properties(options)
            | (EXACT if options.precision == "exact" else {})
        )
        tokenizer, vocabulary = open_tokenizer(path)
        pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(path), tokenizer, scheduler, options.device, **properties
        )
        return pipeline, vocabulary
    except EngineLoadError:
        raise
    except Exception as error:
        raise EngineLoadError(f"OpenVINO can't load {path} on {options.device}: {last_line(error)}") from error


def device_properties(path: Path, options: EngineOptions) -> dict[str, PluginValue]:
    """Return the device's properties: ours, over them those that suit the model's weights, over them the operator's."""
    # An exact engine's cache is in f32, where there is nothing to scale.
    ours = _PROPERTIES.get(device_kind(options.device), {}) if options.precision == "fast" else {}
    return ours | stated_properties(path, options.device) | options.plugin_config
