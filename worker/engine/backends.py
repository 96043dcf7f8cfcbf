"""The engines that a worker can run, and what the rest of the worker must know of one before it is loaded.

What an engine is after loading, such as its slots and its access to logits, is in
:class:`~worker.engine.protocol.EngineInfo`. What it does not support, it refuses by name when a sequence is added.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.model.devices import device_kind

if TYPE_CHECKING:
    from shared.runtime.settings import EngineSettings


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One engine. Its modules are named, not imported: each is imported in its own subprocess only."""

    options: str = "worker.engine.options:EngineOptions"
    """The class of its :class:`~worker.engine.options.EngineOptions`, as ``module:name``, which supervisors import."""
    engine: str
    """The class of the :class:`~worker.engine.protocol.Engine`, as ``module:name``."""
    prompts: str = "worker.prompt.child"
    """The prompt process."""
    prompt_maker: str = ""
    """The function that loads the :class:`~worker.prompt.maker.PromptMaker`, as ``module:name``."""
    has_model: bool
    """Whether ``--model`` is the source of a model. Otherwise it is ``NAME=DIRECTIVES``."""
    grammars: str = ""
    """The :class:`~worker.grammar.messages.Profiler` of the grammar process. Empty: no grammars are enforced."""
    caches_prefixes: bool
    """Whether the engine can reuse the KV cache of earlier prompts."""
    device: str = ""
    """The device that it reports. Empty: the one that ``--device`` names."""


_OPTIONS = "worker.openvino.options:OpenVINOOptions"

_OPENVINO = Backend(
    options=_OPTIONS,
    engine="worker.openvino.engine:OpenVINOEngine",
    prompt_maker="worker.openvino.prompt_maker:load_prompt_maker",
    has_model=True,
    grammars="worker.openvino.grammar_profiler:GrammarProfiler",
    caches_prefixes=True,
)

EMBEDDING = "embedding"

BACKENDS: Mapping[str, Backend] = {
    # Which of the two OpenVINO engines runs is decided when the model is loaded (worker.openvino.load).
    **dict.fromkeys(("auto", "batched", "stateful", "openvino"), _OPENVINO),
    # Of models whose files say that they compute vectors, or scores of pairs.
    EMBEDDING: Backend(
        options=_OPTIONS,
        engine="worker.embed.engine:EmbeddingEngine",
        prompts="worker.embed.child",
        has_model=True,
        caches_prefixes=False,
    ),
    "simulated": Backend(
        options="worker.simulated.engine:SimulatedOptions",
        engine="worker.simulated.engine:SimulatedEngine",
        prompt_maker="worker.simulated.prompt_maker:load_prompt_maker",
        has_model=False,
        caches_prefixes=False,
        device="SIMULATED",
    ),
}
"""By the value of ``--engine``, and :data:`EMBEDDING`."""


def computes_on_cpus(settings: "EngineSettings") -> bool:
    """Return whether the engine runs a model on the host's CPUs."""
    return BACKENDS[settings.engine].has_model and device_kind(settings.device) == "CPU"
