"""Options of an engine process, passed as one JSON argument, and the defaults that depend on the host's memory."""

import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Self

import msgspec

from worker.engine.host import free_memory
from worker.model.devices import device_kind
from worker.model.embedding import OWN, VectorSettings

if TYPE_CHECKING:
    from shared.runtime.settings import EngineSettings


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of any engine. Fields without a description are as in :class:`shared.runtime.settings.EngineSettings`.

    An engine with further ones has a class of its own (``options`` of :class:`worker.engine.backends.Backend`), whose
    fields have the names of settings.

    - ``engine``: a key of :data:`worker.engine.backends.BACKENDS`.
    - ``path``: the model's files. For the simulated engine, directives about loading
      (see :mod:`worker.simulated.engine`).
    - ``context_length``: maximum number of tokens of prompt and output together.
    - ``cache_size``: in GB; 0 lets the KV cache grow as needed.
    - ``max_batch``: maximum number of sequences in a batch; with ``fit_batch``, fewer if the KV cache is too small.
    - ``chat_template``: digest of a template that replaces the model's own, or empty.
    - ``prompts``: what else changes prompts, as text: workers with another one can't continue a stream.
    - ``cpus``: the CPUs that the engine may use; empty: those of its parent.
    - ``vectors``: those of the model's entry in a catalogue.
    - ``whole_prompts``: a step may compute a whole prompt.
    """

    engine: str
    path: str
    device: str
    max_batch: int
    fit_batch: bool
    cache_size: int
    context_length: int
    chat_template: str = ""
    prompts: str = ""
    cpus: tuple[int, ...] = ()
    vectors: VectorSettings = OWN
    whole_prompts: bool = False

    @classmethod
    def from_settings(
        cls,
        settings: "EngineSettings",
        *,
        path: str,
        context_length: int,
        engine: str = "",
        cpus: Collection[int] = (),
        chat_template: str = "",
        prompts: str = "",
        vectors: VectorSettings = OWN,
    ) -> Self:
        """Return the options for the model at ``path`` from a worker's settings.

        ``chat_template`` is the text of a template that replaces the model's own, ``engine`` that of the settings.
        """
        fields = cls.chosen(settings) | {"engine": engine or settings.engine, "path": path, "cpus": tuple(sorted(cpus))}
        template = hashlib.sha256(chat_template.encode()).hexdigest() if chat_template else ""
        fields |= {"context_length": context_length, "chat_template": template, "prompts": prompts, "vectors": vectors}
        return cls(**fields)

    @classmethod
    def chosen(cls, settings: "EngineSettings") -> dict[str, Any]:
        """Return the fields that are settings, with what this machine has for ``auto``."""
        fields = {name: getattr(settings, name) for name in cls.__struct_fields__ if hasattr(settings, name)}
        fields["fit_batch"] = settings.max_batch == "auto"
        if settings.max_batch == "auto":
            fields["max_batch"] = max_sequences(settings.device)
        if settings.cache_size == "auto":
            fields["cache_size"] = default_cache_size(settings.device)
        return fields

    @property
    def max_prompt(self) -> int:
        """Maximum length of a prompt in tokens; 0 if only the context limits it. Raises :class:`EngineLoadError`."""
        return 0

    def slots(self, cache_tokens: int) -> int:
        """Return the number of slots, given a KV cache of ``cache_tokens`` tokens."""
        return fitting_sequences(self.device, cache_tokens) if self.fit_batch else self.max_batch


_GB = 2**30
_SHARE = 4
"""The cache gets 1/4 of the free memory: the model needs memory first, and other workers may share the host. Memory
that the cache does not use yet is not allocated."""
_LEAST, _MOST = 1, 16
_SEQUENCE = 512
"""Tokens of prompt and output that each sequence of a full batch has room for. If sequences grow longer, the pipeline
preempts some of them and recomputes them later."""
MIN_BATCH, _MAX_BATCH, _MAX_GPU_BATCH = 4, 32, 64
"""Beyond 32 sequences, a CPU gains little throughput for a higher latency per token (docs/deployment.md). A GPU has
more compute units to fill."""


def default_cache_size(device: str) -> int:
    """Return the default KV cache size in GB from the free memory; 0 lets the cache grow as needed.

    Only a CPU's cache is in host memory. On other devices, the pipeline grows the cache within the device's memory.
    """
    if device_kind(device) != "CPU":
        return 0
    return max(_LEAST, min(free_memory() // (_SHARE * _GB), _MOST))


def max_sequences(device: str) -> int:
    """Return the maximum batch size on ``device``."""
    return _MAX_GPU_BATCH if device_kind(device) == "GPU" else _MAX_BATCH


def fitting_sequences(device: str, cache_tokens: int) -> int:
    """Return the batch size for a KV cache of ``cache_tokens`` tokens, within the limits of ``device``."""
    return max(MIN_BATCH, min(cache_tokens // _SEQUENCE, max_sequences(device)))
