"""The grammar process's profiler with what only tests need: its texts, and measurements of others."""

from shared.protocol.request import Constraint
from worker.openvino.grammar_profiler import GrammarProfiler


class TextProfiler(GrammarProfiler):
    """Also returns random texts."""

    def text(self, constraint: Constraint, max_tokens: int, seed: int = 0) -> str:
        """Return a random text under ``constraint``."""
        return self._compiler.generate(constraint, max_tokens, seed)

    def slowdown_of_others(self, constraint: Constraint, maximum: float) -> float:
        """Measure the slowdown with other texts that are no longer than those of :meth:`slowdown`."""
        other = TextProfiler.__new__(TextProfiler)
        other.__dict__.update(self.__dict__)
        other.max_tokens = max(len(self._time_text(constraint, seed)) for seed in self.seeds)
        other.seeds = range(100, 110)
        return other.slowdown(constraint, maximum)
