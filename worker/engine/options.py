"""Options of an engine process, passed as one JSON argument."""

import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from shared.runtime.plugin_config import PluginValue
from worker.engine.memory import default_cache_size, fitting_sequences, max_sequences

if TYPE_CHECKING:
    from shared.runtime.settings import EngineSettings


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an engine. Fields without a description are as in :class:`shared.runtime.settings.EngineSettings`.

    - ``path``: the GGUF file or OpenVINO IR folder. For the simulated engine, directives about loading
      (see :mod:`worker.engine.directives`).
    - ``context_length``: maximum number of tokens of prompt and output together.
    - ``cache_size``: in GB; 0 lets the KV cache grow as needed.
    - ``prefill_tokens``: maximum number of prompt tokens per step.
    - ``plugin_config``: properties of the OpenVINO device.
    - ``max_batch``: maximum number of sequences in a batch; with ``fit_batch``, fewer if the KV cache is too small.
    - ``chat_template``: digest of a template that replaces the model's own, or empty.
    - ``cpus``: the CPUs that the engine may use; empty: those of its parent.
    - ``sim_step`` and ``sim_load`` are in seconds, ``sim_tokens`` in tokens.
    """

    engine: Literal["openvino", "simulated"]
    path: str
    device: str
    max_batch: int
    fit_batch: bool
    cache_size: int
    prefill_tokens: int
    plugin_config: dict[str, PluginValue]
    prefix_caching: bool
    prompt_lookup: bool
    draft_model: str
    weights: Literal["auto", "int8", "original"]
    precision: Literal["fast", "exact"]
    logits: Literal["auto", "on", "off"]
    context_length: int
    sim_step: float
    sim_tokens: int
    sim_load: float
    chat_template: str = ""
    cpus: tuple[int, ...] = ()

    @classmethod
    def from_settings(
        cls,
        settings: "EngineSettings",
        *,
        path: str,
        context_length: int,
        cpus: Collection[int] = (),
        chat_template: str = "",
    ) -> Self:
        """Return the options for the model at ``path`` from a worker's settings.

        ``chat_template`` is the text of a template that replaces the model's own.
        """
        return cls(
            engine=settings.engine,
            path=path,
            device=settings.device,
            max_batch=max_sequences(settings.device) if settings.max_batch == "auto" else settings.max_batch,
            fit_batch=settings.max_batch == "auto",
            cache_size=default_cache_size(settings.device) if settings.cache_size == "auto" else settings.cache_size,
            prefill_tokens=settings.prefill_tokens,
            plugin_config=settings.plugin_properties,
            prefix_caching=settings.caches_prefixes,
            prompt_lookup=settings.prompt_lookup,
            draft_model=settings.draft_model,
            weights=settings.weights,
            precision=settings.precision,
            logits=settings.logits,
            context_length=context_length,
            sim_step=settings.sim_step,
            sim_tokens=settings.sim_tokens,
            sim_load=settings.sim_load,
            chat_template=hashlib.sha256(chat_template.encode()).hexdigest() if chat_template else "",
            cpus=tuple(sorted(cpus)),
        )

    def slots(self, cache_tokens: int) -> int:
        """Return the number of slots, given a KV cache of ``cache_tokens`` tokens."""
        return fitting_sequences(self.device, cache_tokens) if self.fit_batch else self.max_batch
