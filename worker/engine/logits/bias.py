"""Logit bias of a sequence: the client's biases, and masks for tokens that must not be generated."""

from collections.abc import Sequence

import numpy

from shared.protocol.request import Sampling
from worker.engine.logits.topk import Row

_MASKED = -1e9
"""Added to the logits of tokens that must not be generated. It is finite, so that a grammar, which masks all other
tokens with infinity, is followed even if its only tokens are masked."""


class Bias:
    """The bias of one sequence. It is constant, except for bad words of several tokens, whose last token it masks."""

    def __init__(self, sampling: Sampling, bad_word_tokens: Sequence[tuple[int, ...]] = ()) -> None:
        """``bad_word_tokens`` are sequences of tokens that must not be generated."""
        self._sampling = sampling
        self._tokens = [word[0] for word in bad_word_tokens if len(word) == 1]
        self._words = [word for word in bad_word_tokens if len(word) > 1]
        self._constant: Row | None = None
        self._completing: list[int] = []

    def __bool__(self) -> bool:
        """Whether the sequence has any bias."""
        return bool(self._sampling.logit_bias or self._sampling.allowed_token_ids or self._tokens or self._words)

    @property
    def lookback(self) -> int:
        """Number of generated tokens that :meth:`prepare` needs."""
        return max((len(word) - 1 for word in self._words), default=0)

    def prepare(self, generated: Sequence[int]) -> None:
        """Prepare the bias of the next token. ``generated`` are the tokens before it, at least :attr:`lookback`."""
        self._completing = [word[-1] for word in self._words if tuple(generated[-(len(word) - 1) :]) == word[:-1]]

    def add_to(self, row: Row) -> None:
        """Add the bias to a row."""
        if self._constant is None:
            self._constant = self._make(len(row))
        row += self._constant
        row[self._completing] += _MASKED

    def _make(self, width: int) -> Row:
        allowed = list(self._sampling.allowed_token_ids)
        constant = numpy.full(width, _MASKED if allowed else 0, numpy.float32)
        constant[allowed] = 0
        for token, bias in self._sampling.logit_bias:
            constant[token] += bias
        constant[self._tokens] += _MASKED
        return constant
