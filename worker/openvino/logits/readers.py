"""What sequences read from their rows of logits, log probabilities, and the biases that they add to them."""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from shared.protocol.events import PromptLogprobs, RankedToken, TopToken
from shared.protocol.request import Sampling
from worker.openvino.logits.operation import Logits

Row = NDArray[numpy.float32]
_STRIDES = 64


def log_normalizer(row: Row) -> float:
    """Return the logarithm of the sum of ``exp(row)``: a logit minus it is a log probability."""
    highest = row.max()
    powers = row - highest
    numpy.exp(powers, out=powers)
    # In f32, as the pipeline sums. einsum takes half the time of sum, with an error of about 1e-7.
    return float(highest + numpy.log(numpy.einsum("i->", powers)))


def top(row: Row, count: int) -> NDArray[numpy.intp]:
    """Return the ids of the ``count`` highest logits, highest first; of equal ones, the lower id first.

    The row is written as a table of ``_STRIDES`` lines. No such logit is below the last of the ``count`` highest maxima
    of columns, and few others are above it. That is much faster than partitioning the whole row.

    >>> top(numpy.array([1, 3, 2, 3], numpy.float32), 2).tolist()
    [1, 3]
    """
    columns = len(row) // _STRIDES
    bound = -numpy.inf
    if columns >= count:
        maxima = row[: columns * _STRIDES].reshape(_STRIDES, columns).max(axis=0)
        bound = numpy.partition(maxima, -count)[-count]
    ids = numpy.flatnonzero(row >= bound)
    return ids[numpy.argsort(-row[ids], kind="stable")[:count]]


_MASKED = -1e9
"""Added to the logits of tokens that must not be generated. It is finite, so that a grammar, which masks all other
tokens with infinity, is followed even if its only tokens are masked."""


class Penalties:
    """The penalties of one sequence.

    ``repetition_penalty`` divides the logits of all tokens that are in the prompt or were generated, or multiplies them
    below 0, as transformers and vLLM do. Then, ``presence_penalty`` is subtracted from those of generated tokens, and
    ``frequency_penalty`` as often as they were (OpenAI's formula, https://platform.openai.com/docs/api-reference/chat).
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._repetition = numpy.float32(sampling.repetition_penalty or 1)
        self._frequency = sampling.frequency_penalty or 0.0
        self._presence = sampling.presence_penalty or 0.0
        self._tokens = numpy.array(sorted(set(prompt)) if self._repetition != 1 else (), numpy.intp)
        self._places = {token: place for place, token in enumerate(self._tokens.tolist())}
        self._subtracted = numpy.zeros(len(self._tokens), numpy.float32)
        self._generated: set[int] = set()
        self._counted = 0

    @classmethod
    def of(cls, sampling: Sampling, prompt: Sequence[int]) -> "Penalties | None":
        """Return the penalties of a sequence with this ``prompt``, or None if it has none."""
        has = sampling.frequency_penalty or sampling.presence_penalty or sampling.repetition_penalty not in (None, 1)
        return cls(sampling, prompt) if has else None

    def count(self, generated: Sequence[int]) -> None:
        """Count the tokens that were generated since the last call; ``generated`` are all of them."""
        for token in generated[self._counted :]:
            place = self._places.setdefault(token, len(self._tokens))
            if place == len(self._tokens):
                self._tokens = numpy.append(self._tokens, token)
                self._subtracted = numpy.append(self._subtracted, numpy.float32(0))
            self._subtracted[place] += self._frequency + (0.0 if token in self._generated else self._presence)
            self._generated.add(token)
        self._counted = len(generated)

    def apply_to(self, row: Row) -> None:
        """Change a row in place."""
        logits = row[self._tokens]
        if self._repetition != 1:
            logits = numpy.where(logits < 0, logits * self._repetition, logits / self._repetition)
        row[self._tokens] = logits - self._subtracted


class Bias:
    """What is added to the logits of one sequence: a constant bias, masks of tokens that must not come next, and then
    penalties."""

    def __init__(
        self,
        sampling: Sampling,
        bad_word_tokens: Sequence[tuple[int, ...]] = (),
        *,
        limited: bool = False,
        penalties: Penalties | None = None,
    ) -> None:
        """``bad_word_tokens`` are sequences of tokens that must not be generated; the last of several is masked after
        the others. ``limited``: its JSON text has limits. Without ``penalties``, the pipeline applies them."""
        self._sampling = sampling
        self._limited = limited
        self._penalties = penalties
        self.adjusts = limited or penalties is not None
        self._excluded: NDArray[numpy.bool_] | None = None
        self._tokens = [word[0] for word in bad_word_tokens if len(word) == 1]
        self._words = [word for word in bad_word_tokens if len(word) > 1]
        self._biased = bool(sampling.logit_bias or sampling.allowed_token_ids or self._tokens)
        self._constant: Row | None = None
        self._completing: list[int] = []

    def __bool__(self) -> bool:
        """Whether the sequence has any bias."""
        return bool(self._biased or self._words or self._limited or self._penalties)

    @property
    def lookback(self) -> int:
        """Number of generated tokens that :meth:`prepare` needs."""
        return sys.maxsize if self._penalties else max((len(word) - 1 for word in self._words), default=0)

    def prepare(self, generated: Sequence[int], excluded: NDArray[numpy.bool_] | None = None) -> None:
        """Prepare the bias of the next token. ``generated`` are the tokens before it, at least :attr:`lookback`.

        ``excluded`` says of each token whether the limits of the JSON text exclude it.
        """
        self._excluded = excluded
        if self._penalties:
            self._penalties.count(generated)
        self._completing = [word[-1] for word in self._words if tuple(generated[-(len(word) - 1) :]) == word[:-1]]

    def add_to(self, row: Row) -> None:
        """Add the bias to a row."""
        if self._biased:
            if self._constant is None:
                self._constant = self._make(len(row))
            row += self._constant
        row[self._completing] += _MASKED
        if self._excluded is not None:
            row[: len(self._excluded)][self._excluded[: len(row)]] += _MASKED
        if self._penalties:
            self._penalties.apply_to(row)

    def _make(self, width: int) -> Row:
        allowed = list(self._sampling.allowed_token_ids)
        constant = numpy.full(width, _MASKED if allowed else 0, numpy.float32)
        constant[allowed] = 0
        for token, bias in self._sampling.logit_bias:
            constant[token] += bias
        constant[self._tokens] += _MASKED
        return constant


class RowLost(Exception):
    """No row, or another sequence's row, was found for a token. Its log probabilities are unknown."""


_TOLERANCE = 0.01
"""Maximum difference between the pipeline's log probability of a token and that of its row. The pipeline's sums are in
f32; measured differences are below 0.001."""


class TokenLogprobs(NamedTuple):
    """The log probability of a token, and the most likely tokens at its position as (id, log probability)."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class RowReader:
    """The rows of one sequence that needs them: keeps those of a step until its tokens are read."""

    def __init__(self, sampling: Sampling, bias: Bias | None = None) -> None:
        """``bias`` is that of ``sampling`` alone if there is no other."""
        self._top = sampling.top_logprobs
        self.bias = Bias(sampling) if bias is None else bias
        self.reads = not self.bias.adjusts or sampling.logprobs or sampling.rows_param is not None
        """Whether log probabilities are read. Otherwise, no row is copied."""
        self._rows: list[Row] = []

    def keep(self, rows: Logits) -> None:
        """Copy the rows that the next tokens are sampled from."""
        if self.reads:
            self._rows = list(rows.copy())

    def forget(self) -> None:
        """Discard the rows: a step begins."""
        self._rows = []

    def take(self, token: int, reported: float | None) -> TokenLogprobs:
        """Return the log probabilities at the position of ``token`` before any bias, and discard its row.

        ``reported`` is the pipeline's own log probability of the token; None if it reports none. Raises
        :class:`RowLost` if there is no row, or if the row gives another value, and thus belongs to another sequence.
        """
        if not self._rows:
            raise RowLost("no row of logits was found")
        row = self._rows.pop(0)
        normalizer = log_normalizer(row)
        logprob = float(row[token]) - normalizer
        if reported is not None:
            self._check(row, token, logprob, reported)
        if not self._top:
            return TokenLogprobs(logprob, ())
        ids = top(row, self._top)
        logprobs = row[ids].astype(numpy.float64) - normalizer
        return TokenLogprobs(logprob, tuple(zip(ids.tolist(), logprobs.tolist(), strict=True)))

    def _check(self, row: Row, token: int, logprob: float, reported: float) -> None:
        expected = logprob
        if self.bias:
            biased = row.copy()
            self.bias.add_to(biased)
            expected = float(biased[token]) - log_normalizer(biased)
        if not abs(expected - reported) <= _TOLERANCE:
            raise RowLost(f"the row gives a log probability of {expected:.4f}, and the pipeline {reported:.4f}")


def read_rows(
    reader: RowReader, tokens: Sequence[int], reported: Sequence[float] | None, piece: Callable[[int], bytes]
) -> tuple[list[float], list[tuple[TopToken, ...]]]:
    """Return the log probabilities of a step's tokens, and the most likely tokens at their positions.

    ``reported`` are the pipeline's log probabilities, if it reports them; ``piece`` returns a token's bytes. Raises
    :class:`RowLost`.
    """
    own = [None] * len(tokens) if reported is None else reported
    read = [reader.take(*token) for token in zip(tokens, own, strict=True)]
    return [item.logprob for item in read], [
        tuple(TopToken(piece(token), logprob) for token, logprob in item.top) for item in read
    ]


Ranked = tuple[int, float, int]
"""A token's id, log probability and rank."""


class PromptReader:
    """Collects the log probabilities of one prompt, while the pipeline computes it in one or several steps.

    The pipeline computes a row for every token of a prompt only if its output repeats the prompt (``echo``). That part
    of the output is ignored: in a batch with other sequences, its log probabilities are those of other rows. There are
    no rows for tokens in the prefix cache, so the first token is salted, and the prompt differs from all that are
    cached. The other tokens can't be salted: with ``echo``, the pipeline looks up their logits.
    """

    def __init__(self, prompt: tuple[int, ...], most_likely: int) -> None:
        """``most_likely`` is the number of most likely tokens to collect at each position."""
        self._prompt = prompt
        self._most_likely = most_likely
        self._own: list[Ranked] = []
        self._top: list[tuple[Ranked, ...]] = []

    @property
    def complete(self) -> bool:
        """Whether the rows of all tokens but the last were kept. The last token's row is that of the first new one."""
        return self.expected == len(self._prompt) - 1

    @property
    def expected(self) -> int:
        """The position of the first token whose row was not kept yet."""
        return len(self._own)

    def keep(self, position: int, rows: Logits) -> None:
        """Read consecutive rows, the first of which was computed from the token at ``position``.

        Rows that were kept already are ignored, and so are those of generated tokens. Rows after a gap are, too, so the
        prompt never becomes complete.
        """
        for row in rows[max(0, self.expected - position) :] if position <= self.expected else ():
            if self.complete:
                break
            self._read(row, self._prompt[self.expected + 1])

    def _read(self, row: Row, token: int) -> None:
        normalizer = log_normalizer(row)
        self._own.append((token, float(row[token]) - normalizer, 1 + int((row > row[token]).sum())))
        ids = top(row, self._most_likely) if self._most_likely else ()
        self._top.append(tuple((int(id_), float(row[id_]) - normalizer, rank) for rank, id_ in enumerate(ids, 1)))

    def result(self, piece: Callable[[int], bytes]) -> PromptLogprobs:
        """Return the log probabilities of the prompt; ``piece`` returns a token's bytes.

        Raises :class:`RowLost` if some are missing.
        """
        if not self.complete:
            raise RowLost(f"the prompt has {len(self._prompt)} tokens, and rows were found for {len(self._own)}")

        def named(ranked: Ranked) -> RankedToken:
            token, logprob, rank = ranked
            return RankedToken(token, piece(token), logprob, rank)

        return PromptLogprobs(
            first=(self._prompt[0], piece(self._prompt[0])),
            rest=tuple(map(named, self._own)),
            top=tuple(tuple(map(named, tokens)) for tokens in self._top),
        )
