"""The grammar process's profiler with what only tests need: its texts, and measurements of others."""

from worker.engine.protocol import OutputGrammar
from worker.openvino.grammar_profiler import GrammarProfiler


class TextProfiler(GrammarProfiler):
    """Also returns random texts."""

    def text(self, grammar: OutputGrammar, max_tokens: int, seed: int = 0) -> str:
        """Return a random text under ``grammar``."""
        return self._compiler.generate(grammar, max_tokens, seed)

    def slowdown_of_others(self, grammar: OutputGrammar, maximum: float) -> float:
        """Measure the slowdown with other texts that are no longer than those of :meth:`slowdown`."""
        other = TextProfiler.__new__(TextProfiler)
        other.__dict__.update(self.__dict__)
        other.max_tokens = max(len(self._time_text(grammar, seed)) for seed in self.seeds)
        other.seeds = range(100, 110)
        return other.slowdown(grammar, maximum)
