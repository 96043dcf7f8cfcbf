"""Profiles grammars for a tokenizer's vocabulary: the time to compile one, and the cost of sampling under it."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import openvino_genai

from worker.engine.protocol import OutputGrammar
from worker.openvino.grammar_compiler import GrammarCompiler
from worker.openvino.vocabulary import open_tokenizer

_MAX_TOTAL_TOKENS = 100
"""Number of tokens, of all texts, after which no further text is generated."""
_WINDOW = 8
"""Tokens in the moving average of the cost per token."""
_REPETITIONS = 3
"""How often a text that is too slow is generated again before the grammar counts as slow."""
_BUDGET = 0.3
"""Seconds after which a text is known to be expensive, and its generation stops."""


class GrammarProfiler:
    """Compiles grammars and measures the cost of sampling under them, with a stub model."""

    seeds = range(10)
    """Of the random texts."""
    max_tokens = 48
    """Maximum length of each text. Under some grammars, a token costs more in a longer text."""

    def __init__(self, path: str) -> None:
        """Load the tokenizer of the GGUF file or IR folder at ``path``. Raises :class:`RuntimeError` on failure."""
        tokenizer, vocabulary = open_tokenizer(Path(path))
        self._compiler = GrammarCompiler(tokenizer, len(vocabulary))
        self._compiler.prepare()

    def slowdown(self, grammar: OutputGrammar, maximum: float) -> float:
        """Measure the slowdown with random texts, until it exceeds ``maximum``. Raises :class:`GrammarError`.

        Costs are CPU time, and those above ``maximum`` the minimum of several measurements, to be independent of the
        machine's load.
        """
        slowdown, tokens = 0.0, 0
        for seed in self.seeds:
            cost, length = self._text_cost(grammar, seed, maximum)
            slowdown, tokens = max(slowdown, cost), tokens + length
            if slowdown > maximum or tokens > _MAX_TOTAL_TOKENS:
                break
        return slowdown

    def compile(self, grammar: OutputGrammar) -> float:
        """Compile a grammar and return the time in seconds. Raises :class:`GrammarError`."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._compiler.compile(grammar)
        # Wall time includes other processes on a busy machine; CPU time adds up the threads.
        return min(time.perf_counter() - wall, time.process_time() - cpu)

    def _text_cost(self, grammar: OutputGrammar, seed: int, maximum: float) -> tuple[float, int]:
        """Return the slowdown of one random text and its length in tokens."""
        seconds = self._time_text(grammar, seed)
        slowdown = self._relative_cost(seconds)
        for _ in range(_REPETITIONS):
            if slowdown <= maximum:
                break
            # Other load only adds to a measurement, so the lowest one of each token counts.
            seconds = [min(pair) for pair in zip(seconds, self._time_text(grammar, seed), strict=False)]
            slowdown = self._relative_cost(seconds)
        return slowdown, len(seconds)

    def _relative_cost(self, seconds: Sequence[float]) -> float:
        """Return the cost of the tokens of a text as a multiple of the current cost without a grammar."""
        plain = _TokenTimer(_BUDGET)
        self._compiler.generate(None, _WINDOW, 0, plain)
        return _highest_average(seconds) / statistics.median(plain.seconds)

    def _time_text(self, grammar: OutputGrammar, seed: int) -> list[float]:
        """Return the seconds that each token of a random text takes."""
        steps = _TokenTimer(_BUDGET)
        self._compiler.generate(grammar, self.max_tokens, seed, steps)
        return steps.seconds


class _TokenTimer(openvino_genai.StreamerBase):  # type: ignore[misc]
    """Measures the CPU time of each token except the first, which includes the compilation."""

    def __init__(self, budget: float) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._budget = budget
        self._last: float | None = None

    def write(self, token: int | Sequence[int]) -> openvino_genai.StreamingStatus:
        """Record the time of a token; stop the generation once it has taken ``budget`` seconds."""
        now = time.process_time()
        if self._last is not None:
            self.seconds.append(now - self._last)
        self._last = now
        if sum(self.seconds) > self._budget:
            return openvino_genai.StreamingStatus.STOP
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Do nothing after the last token."""


def _highest_average(seconds: Sequence[float]) -> float:
    """Return the maximum of the moving average over ``_WINDOW`` tokens."""
    starts = range(max(len(seconds) - _WINDOW, 0) + 1)
    return max(sum(seconds[start : start + _WINDOW]) for start in starts) / _WINDOW
