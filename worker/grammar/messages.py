"""Messages between the supervisor and the grammar process.

The grammar process compiles every new grammar before the engine does, with the same tokenizer and without the model.
In the engine, a grammar that fails or is slow would fail or stall the step of the whole batch.
"""

from typing import Protocol

import msgspec

from worker.engine.protocol import OutputGrammar


class GrammarOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Start-up options of the grammar process. ``engine`` and ``path`` are as in :class:`EngineOptions`."""

    engine: str
    path: str


class Compile(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Compile a grammar. The reply is the time in seconds."""

    grammar: OutputGrammar


class Profile(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Sample under a grammar, until the slowdown is known to exceed ``max_slowdown``.

    The reply is the slowdown: the cost of a token under the grammar as a multiple of that without it.
    """

    grammar: OutputGrammar
    max_slowdown: float


GrammarCall = Compile | Profile


class Profiler(Protocol):
    """What an engine compiles grammars with, without its model. Raises :class:`GrammarError`."""

    def compile(self, grammar: OutputGrammar) -> float:
        """Compile a grammar and return the time in seconds."""

    def slowdown(self, grammar: OutputGrammar, maximum: float) -> float:
        """Return the cost of sampling, as a multiple of that without a grammar; it may stop above ``maximum``."""
