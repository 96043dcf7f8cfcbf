"""Options of the OpenVINO engines."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shared.runtime.plugin_config import PluginValue
from worker.engine.options import MIN_BATCH, EngineOptions
from worker.engine.protocol import EngineLoadError
from worker.model.devices import device_kind
from worker.openvino.npu import StaticShape, static_shape

if TYPE_CHECKING:
    from shared.runtime.settings import EngineSettings

Speculation = Literal["none", "draft", "eagle3", "lookup"]

_REMEDY = "give --draft-model a language model with the same vocabulary, or an EAGLE-3 head"


@cache
def draft_kind(folder: str) -> Literal["draft", "eagle3"]:
    """Return whether the IR in ``folder`` is a language model, or an EAGLE-3 head, as optimum-intel marks it.

    Raises :class:`EngineLoadError` if there is none, or if it is of a kind whose limits in OpenVINO GenAI 2026.4 are
    not those of a server: both refuse requests that sample, and DFlash all but one at a time.
    """
    graph = Path(folder) / "openvino_model.xml"
    if not graph.is_file() and not graph.with_stem("openvino_mtp_model").is_file():
        raise EngineLoadError(f"there is no draft model at {folder}: {_REMEDY}, as OpenVINO IR folder")
    text = graph.read_text("utf-8") if graph.is_file() else ""
    if '<dflash_mode value="True"' in text:
        raise EngineLoadError(f"a DFlash draft model serves one request at a time, without sampling: {_REMEDY}")
    if not text or '"full_attention_key"' in text or '<mtp_mode value="True"' in text:
        raise EngineLoadError(f"a draft model for multi-token prediction (MTP) serves no sampling: {_REMEDY}")
    return "eagle3" if '<eagle3_mode value="True"' in text else "draft"


class OpenVINOOptions(EngineOptions, frozen=True, kw_only=True):
    """Options with ``path`` of a GGUF file or an OpenVINO IR folder.

    - ``prefill_tokens``: maximum number of prompt tokens per step.
    - ``plugin_config``: properties of the OpenVINO device.
    """

    prefill_tokens: int
    plugin_config: dict[str, PluginValue]
    prefix_caching: bool
    prompt_lookup: bool
    draft_model: str
    weights: Literal["auto", "int8", "original"]
    precision: Literal["fast", "exact"]
    logits: Literal["auto", "on", "off"]

    @classmethod
    def chosen(cls, settings: "EngineSettings") -> dict[str, Any]:
        """Return the fields that are settings. With a draft model, few sequences share a cache that grows."""
        fields = super().chosen(settings) | {"plugin_config": settings.plugin_properties}
        if not settings.draft_model:
            return fields
        most = MIN_BATCH if fields["fit_batch"] else fields["max_batch"]
        # Where a step interrupts a sequence for want of cache, a draft model's tokens are taken unverified.
        return fields | {"max_batch": most, "fit_batch": False, "cache_size": 0, "whole_prompts": True}

    @property
    def speculation(self) -> Speculation:
        """The kind of speculative decoding. Raises :class:`EngineLoadError` for a draft model that can't be served."""
        return draft_kind(self.draft_model) if self.draft_model else "lookup" if self.prompt_lookup else "none"

    @property
    def shape(self) -> StaticShape | None:
        """What the pipeline is compiled for on an NPU; None on other devices. Raises :class:`EngineLoadError`."""
        return static_shape(self.plugin_config) if device_kind(self.device) == "NPU" else None

    @property
    def max_prompt(self) -> int:
        return self.shape.prompt if self.shape else 0
