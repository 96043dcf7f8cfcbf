"""Assigns the rows of logits that the tap sees to sequences, and reads log probabilities from them.

A row does not say which sequence it belongs to. It carries the token that it was computed from and that token's
position, and rows are in the order in which sequences were added to the pipeline. A sequence's first row is marked by
a salted token: a prompt token plus a multiple of the number of logits, which the graph removes again. It is the last
token, or the first one if the sequence has a row for each token of its prompt.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy

from shared.protocol.events import TopToken
from shared.protocol.request import Sampling
from worker.engine.logits.bias import Bias
from worker.engine.logits.matching import KnownTokens, RowLost, StepRows
from worker.engine.logits.operation import Logits, StepInput
from worker.engine.logits.prefill import PrefillTracker
from worker.engine.logits.prompt import PromptReader
from worker.engine.logits.topk import Row, log_normalizer, top

_TOLERANCE = 0.01
"""Maximum difference between the pipeline's log probability of a token and that of its row. The pipeline's sums are in
f32; measured differences are below 0.001."""


class TokenLogprobs(NamedTuple):
    """The log probability of a token, and the most likely tokens at its position as (id, log probability)."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class RowReader:
    """The rows of one sequence that needs them: keeps the latest one until its token is read."""

    def __init__(self, sampling: Sampling, bad_word_tokens: Sequence[tuple[int, ...]] = ()) -> None:
        """``bad_word_tokens`` are sequences of tokens that must not be generated."""
        self._top = sampling.top_logprobs
        self.bias = Bias(sampling, bad_word_tokens)
        self._row: Row | None = None

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
        if self.bias:
            biased = row.copy()
            self.bias.add_to(biased)
            expected = float(biased[token]) - log_normalizer(biased)
        if not abs(expected - reported) <= _TOLERANCE:
            raise RowLost(f"the row gives a log probability of {expected:.4f}, and the pipeline {reported:.4f}")
        if not self._top:
            return TokenLogprobs(logprob, ())
        ids = top(row, self._top)
        logprobs = row[ids].astype(numpy.float64) - normalizer
        return TokenLogprobs(logprob, tuple(zip(ids.tolist(), logprobs.tolist(), strict=True)))


class PipelineSequence(KnownTokens, Protocol):
    """A sequence in the pipeline.

    ``reader`` is None if the sequence needs no rows. With ``prompt``, it has a row for each token of its prompt;
    ``reader`` is then set too.
    """

    @property
    def reader(self) -> RowReader | None: ...

    @property
    def prompt(self) -> PromptReader | None: ...

    def generated(self, most: int) -> Sequence[int]:
        """Return its last generated tokens, at most ``most``."""


class RowAssigner:
    """Listens to the tap, and hands rows to the readers of their sequences."""

    def __init__(self, sequences: Mapping[int, PipelineSequence], prefills: PrefillTracker) -> None:
        """``sequences`` are those in the pipeline, in the order in which they were added."""
        self._sequences = sequences
        self._prefills = prefills
        self.width = 0
        """Number of logits in a row, at least the size of the vocabulary; 0 until the first one."""

    def wants_rows(self) -> bool:
        """Return whether a sequence needs its row, or has no output yet."""
        return self._prefills.waiting or self._has_readers

    def on_logits(self, logits: Logits, step: StepInput) -> None:
        """Hand out the rows of a step, and add biases to them."""
        self.width = logits.shape[1]
        self._prefills.record_step(step)
        if not self._has_readers:
            return
        rows = StepRows(step.tokens[step.sampled], step.positions[step.sampled])
        for sequence in self._sequences.values():
            reader = sequence.reader
            if reader is not None:
                reader.forget()
            row = _take_row(sequence, rows, logits)
            if reader is None or row is None:
                continue
            reader.keep(logits[row])
            if reader.bias:
                reader.bias.prepare(sequence.generated(reader.bias.lookback))
                reader.bias.add_to(logits[row])

    @property
    def _has_readers(self) -> bool:
        return any(sequence.reader is not None for sequence in self._sequences.values())


def _take_row(sequence: PipelineSequence, rows: StepRows, logits: Logits) -> int | None:
    """Return the row of the sequence's next token; hand those of its prompt to its prompt reader."""
    if sequence.prompt is None:
        return rows.take(sequence.last())
    last = sequence.last()[1]
    run = rows.take_run(sequence, last if sequence.prompt.complete else sequence.prompt.expected)
    if not run:
        return None
    sequence.prompt.keep(rows.position(run.start), logits[run.start : run.stop])
    return run[-1] if rows.position(run[-1]) == last else None


def needs_rows(sampling: Sampling) -> bool:
    """Return whether a sequence needs the rows of logits of its new tokens."""
    return bool(sampling.top_logprobs or sampling.logit_bias or sampling.allowed_token_ids or sampling.bad_words)


def read_rows(
    reader: RowReader, tokens: Iterable[int], reported: Iterable[float], piece: Callable[[int], bytes]
) -> tuple[list[float], list[tuple[TopToken, ...]]]:
    """Return the log probabilities of a step's tokens, and the most likely tokens at their positions.

    ``reported`` are the pipeline's log probabilities; ``piece`` returns a token's bytes. Raises :class:`RowLost`.
    """
    read = [reader.take(*token) for token in zip(tokens, reported, strict=True)]
    return [item.logprob for item in read], [
        tuple(TopToken(piece(token), logprob) for token, logprob in item.top) for item in read
    ]
