"""OpenVINO GenAI's pipeline on an NPU, which computes with static shapes.

Names and meaning of the properties are those of OpenVINO's documentation, "OpenVINO GenAI on NPU". Not run on hardware.
"""

from typing import NamedTuple

from shared.runtime.plugin_config import PluginValue
from worker.engine.protocol import EngineLoadError
from worker.model.cache import user_cache

_PROMPT, _RESPONSE = "MAX_PROMPT_LEN", "MIN_RESPONSE_LEN"
_DEFAULTS: dict[str, PluginValue] = {_PROMPT: 1024, _RESPONSE: 512, "GENERATE_HINT": "BEST_PERF"}
"""OpenVINO's own defaults are 1,024 tokens, 128 tokens and ``FAST_COMPILE``. What is compiled is cached here."""


class StaticShape(NamedTuple):
    """The numbers of tokens that the pipeline is compiled for: the longest prompt, and prompt and output together."""

    prompt: int
    context: int


def static_shape(properties: dict[str, PluginValue]) -> StaticShape:
    """Return the shape for an engine with the operator's ``properties``. Raises :class:`EngineLoadError`."""
    lengths = []
    for name in (_PROMPT, _RESPONSE):
        length = (_DEFAULTS | properties)[name]
        if type(length) is not int or length < 1:
            raise EngineLoadError(f"--plugin-config: {name} must be a positive number of tokens, not {length!r}")
        lengths.append(length)
    return StaticShape(lengths[0], sum(lengths))


def npu_properties(properties: dict[str, PluginValue], precision: str) -> dict[str, PluginValue]:
    """Return the properties for a pipeline on an NPU, those of the operator among them."""
    if precision == "exact":
        raise EngineLoadError("NPUs do not compute in f32: omit --precision exact")
    return _DEFAULTS | {"CACHE_DIR": str(user_cache() / "npu")} | properties
