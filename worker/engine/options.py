"""What an engine process is told at its start: one JSON argument."""

import hashlib
from collections.abc import Collection
from typing import Literal, Self

import msgspec

from shared.runtime.settings import EngineSettings, PluginValue
from worker.engine.memory import default_cache_size, fitting_sequences, most_sequences


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The engine and how to run it; the fields are those of :class:`shared.runtime.settings.EngineSettings`.

    ``path`` is the resolved GGUF file or OpenVINO IR folder. For the simulated engine it is no path: it may
    hold directives about loading (see :mod:`worker.engine.directives`).
    ``context_length`` is the most tokens of prompt and answer together. ``cache_size`` is in GB; 0 lets the
    KV cache grow as needed. ``prefill_tokens`` are the most tokens of prompts in one step. ``plugin_config`` holds
    properties of the OpenVINO device. ``max_batch`` is the most sequences in a batch; with ``fit_batch``, the engine
    takes fewer where its KV cache is too small for so many. ``chat_template`` is the digest of a
    template that replaces the model's own, if there is one. ``cpus`` are those on which the engine may run; with none,
    on its parent's.
    ``sim_step`` and ``sim_load`` are in seconds, ``sim_tokens`` in tokens.
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
    context_length: int
    sim_step: float
    sim_tokens: int
    sim_load: float
    chat_template: str = ""
    cpus: tuple[int, ...] = ()

    @classmethod
    def from_settings(
        cls,
        settings: EngineSettings,
        *,
        path: str,
        context_length: int,
        cpus: Collection[int] = (),
        chat_template: str = "",
    ) -> Self:
        """Return the options of the model at ``path`` under a worker's settings.

        ``chat_template`` is the text of a template that replaces the model's own.
        """
        return cls(
            engine=settings.engine,
            path=path,
            device=settings.device,
            max_batch=most_sequences(settings.device) if settings.max_batch == "auto" else settings.max_batch,
            fit_batch=settings.max_batch == "auto",
            cache_size=default_cache_size(settings.device) if settings.cache_size == "auto" else settings.cache_size,
            prefill_tokens=settings.prefill_tokens,
            plugin_config=settings.plugin_properties,
            prefix_caching=settings.caches_prefixes,
            prompt_lookup=settings.prompt_lookup,
            draft_model=settings.draft_model,
            weights=settings.weights,
            precision=settings.precision,
            context_length=context_length,
            sim_step=settings.sim_step,
            sim_tokens=settings.sim_tokens,
            sim_load=settings.sim_load,
            chat_template=hashlib.sha256(chat_template.encode()).hexdigest() if chat_template else "",
            cpus=tuple(sorted(cpus)),
        )

    def slots(self, cache_tokens: int) -> int:
        """Return how many sequences to take at once, with a KV cache that holds ``cache_tokens``."""
        return fitting_sequences(self.device, cache_tokens) if self.fit_batch else self.max_batch
