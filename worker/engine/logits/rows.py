"""Assigns the rows of logits that the tap sees to sequences, and reads log probabilities from them.

A row does not say which sequence it belongs to. It carries the token that it was computed from and that token's
position, and rows come in the order in which sequences were added to the pipeline. A sequence's first row is marked by
a salted token: its last prompt token plus a multiple of the number of logits, which the graph removes again.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

import numpy

from shared.protocol.events import TopToken
from shared.protocol.request import Sampling
from worker.engine.logits.operation import Ids, Logits
from worker.engine.logits.topk import Row, log_normalizer, top

_TOLERANCE = 0.01
"""Maximum difference between the pipeline's log probability of a token and that of its row. The pipeline's sums are in
f32; measured differences are below 0.001."""

_MOST_ID = 2**31
"""Salted token ids are below this."""


class RowLost(Exception):
    """No row, or another sequence's row, was found for a token. Its log probabilities are unknown."""


class TokenLogprobs(NamedTuple):
    """The log probability of a token, and the most likely tokens at its position as (id, log probability)."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class RowReader:
    """The rows of one sequence that needs them: keeps the latest one until its token is read."""

    def __init__(self, sampling: Sampling) -> None:
        self._top = sampling.top_logprobs
        self._biased = numpy.array([token for token, _ in sampling.logit_bias], numpy.int64)
        self._biases = numpy.array([bias for _, bias in sampling.logit_bias], numpy.float32)
        self._row: Row | None = None

    @property
    def has_bias(self) -> bool:
        """Whether a bias is added to the sequence's logits."""
        return bool(self._biased.size)

    def add_bias(self, bias: Row) -> None:
        """Write the sequence's bias into ``bias``, a row of zeros."""
        bias[self._biased] = self._biases

    def keep(self, row: Row) -> None:
        """Copy the row that the next token is sampled from."""
        self._row = row.copy()

    def forget(self) -> None:
        """Discard the row: a step begins, or its token is not needed."""
        self._row = None

    def take(self, token: int, reported: float) -> TokenLogprobs:
        """Return the log probabilities at the position of ``token`` before any bias, and discard the row.

        ``reported`` is the pipeline's own log probability of the token. Raises :class:`RowLost` if there is no row, or
        if the row gives another value, and thus belongs to another sequence.
        """
        row, self._row = self._row, None
        if row is None:
            raise RowLost("no row of logits was found")
        normalizer = log_normalizer(row)
        logprob = float(row[token]) - normalizer
        expected = logprob
        if self.has_bias:
            biased = row.copy()
            biased[self._biased] += self._biases
            expected = float(biased[token]) - log_normalizer(biased)
        if not abs(expected - reported) <= _TOLERANCE:
            raise RowLost(f"the row gives a log probability of {expected:.4f}, and the pipeline {reported:.4f}")
        ids = top(row, self._top) if self._top else ()
        return TokenLogprobs(logprob, tuple((int(one), float(row[one]) - normalizer) for one in ids))


class InPipeline(Protocol):
    """A sequence in the pipeline. ``reader`` is None if it does not need its rows."""

    @property
    def reader(self) -> RowReader | None: ...

    def last(self) -> tuple[int, int]:
        """Return its last token, as the pipeline was given it, and that token's position."""


class RowAssigner:
    """Listens to the tap, and hands rows to the readers of their sequences."""

    def __init__(self, sequences: Mapping[int, InPipeline]) -> None:
        """``sequences`` are those in the pipeline, in the order in which they were added."""
        self._sequences = sequences
        self.width = 0
        """Number of logits in a row, at least the size of the vocabulary; 0 until the first one."""

    def on_logits(self, logits: Logits, tokens: Ids, positions: Ids) -> Logits | None:
        """Hand out the rows of a step; return the bias, or None if no row has one."""
        if not any(sequence.reader for sequence in self._sequences.values()):
            return None
        self.width = logits.shape[1]
        rows: defaultdict[tuple[int, int], deque[int]] = defaultdict(deque)
        for row, key in enumerate(zip(tokens.tolist(), positions.tolist(), strict=True)):
            rows[key].append(row)
        bias: Logits | None = None
        for sequence in self._sequences.values():
            reader = sequence.reader
            if reader is not None:
                reader.forget()
            own = rows.get(sequence.last())
            if not own:
                continue
            row = own.popleft()
            if reader is None:
                continue
            reader.keep(logits[row])
            if reader.has_bias:
                if bias is None:
                    bias = numpy.zeros(logits.shape, numpy.float32)
                reader.add_bias(bias[row])
        return bias


def needs_rows(sampling: Sampling) -> bool:
    """Return whether a sequence needs its rows of logits."""
    return bool(sampling.top_logprobs or sampling.logit_bias)


def with_salt(tokens: tuple[int, ...], number: int, width: int, sampling: Sampling) -> tuple[int, ...]:
    """Return ``tokens`` with a salted last one, which depends on ``number``. A row has ``width`` logits.

    A repetition penalty rules that out: the pipeline looks up the logits of all prompt tokens.
    """
    if sampling.repetition_penalty not in (None, 1.0):
        return tokens
    salt = 1 + number % (_MOST_ID // width - 1)
    return (*tokens[:-1], tokens[-1] + salt * width)


def read_rows(
    reader: RowReader, tokens: Iterable[int], reported: Iterable[float], piece: Callable[[int], bytes]
) -> tuple[list[float], list[tuple[TopToken, ...]]]:
    """Return the log probabilities of a step's tokens, and the most likely tokens at their positions.

    ``reported`` are the pipeline's log probabilities; ``piece`` returns a token's bytes. Raises :class:`RowLost`.
    """
    read = [reader.take(*token) for token in zip(tokens, reported, strict=True)]
    return [one.logprob for one in read], [
        tuple(TopToken(piece(token), logprob) for token, logprob in one.top) for one in read
    ]
