"""Assigns the rows of logits that the hook sees to sequences.

A row does not say which sequence it belongs to. It carries the token that it was computed from and that token's
position, and rows are in the order in which sequences were added to the pipeline. A sequence's first row is marked by
a salted token: a prompt token plus a multiple of the number of logits, which the graph removes again. It is the last
token, or the first one if the sequence has a row for each token of its prompt.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Series
from typing import NamedTuple, Protocol

import openvino_genai

from shared.protocol.request import PromptScoring, Sampling
from worker.engine.logits.operation import Ids, Key, Logits, StepInput
from worker.engine.logits.prefill import PrefillTracker
from worker.engine.logits.readers import PromptReader, RowReader, needs_rows
from worker.engine.protocol import Sequence
from worker.engine.sampling import score_prompt


class KnownTokens(Protocol):
    """The known tokens of a sequence in the pipeline."""

    def token_at(self, position: int) -> int:
        """Return the token at ``position`` of the pipeline's input or output."""

    def last(self) -> Key:
        """Return its last token and that token's position."""


class StepRows:
    """The rows of one step. Each is taken once, by the sequences in the order in which they were added."""

    def __init__(self, tokens: Ids, positions: Ids) -> None:
        self._keys: list[Key] = list(zip(tokens.tolist(), positions.tolist(), strict=True))
        self._rows: defaultdict[Key, deque[int]] = defaultdict(deque)
        for row, key in enumerate(self._keys):
            self._rows[key].append(row)
        self._taken: set[int] = set()

    def take(self, key: Key) -> int | None:
        """Take and return the first row with ``key``."""
        row = self._first(key)
        if row is not None:
            self._taken.add(row)
        return row

    def take_run(self, sequence: KnownTokens, expected: int) -> range:
        """Take and return the consecutive rows of a sequence that has one for each of its tokens.

        ``expected`` is the position at which the prefill should continue. After a preemption, it may continue at an
        earlier one. A single row at another position is not enough, because it may belong to another sequence.
        """
        run = self._run_at(sequence, expected)
        position = expected
        while not run and position > 0:
            position -= 1
            run = self._run_at(sequence, position)
            if len(run) == 1 and position > 0:
                run = range(0)
        self._taken.update(run)
        return run

    def position(self, row: int) -> int:
        """Return the position of a row's token."""
        return self._keys[row][1]

    def _first(self, key: Key) -> int | None:
        rows = self._rows.get(key)
        while rows and rows[0] in self._taken:
            rows.popleft()
        return rows[0] if rows else None

    def _run_at(self, sequence: KnownTokens, position: int) -> range:
        """Return the longest run of the sequence's rows around that of ``position``."""
        row = self._first((sequence.token_at(position), position))
        if row is None:
            return range(0)
        start = end = row
        while self._belongs(sequence, start - 1, position - (row - start) - 1):
            start -= 1
        while self._belongs(sequence, end + 1, position + (end - row) + 1):
            end += 1
        return range(start, end + 1)

    def _belongs(self, sequence: KnownTokens, row: int, position: int) -> bool:
        if not (0 <= row < len(self._keys) and 0 <= position <= sequence.last()[1]) or row in self._taken:
            return False
        return self._keys[row] == (sequence.token_at(position), position)


class PipelineSequence(KnownTokens, Protocol):
    """A sequence in the pipeline.

    ``reader`` is None if the sequence needs no rows. With ``prompt``, it has a row for each token of its prompt;
    ``reader`` is then set too.
    """

    @property
    def reader(self) -> RowReader | None: ...

    @property
    def prompt(self) -> PromptReader | None: ...

    def generated(self, most: int) -> Series[int]:
        """Return its last generated tokens, at most ``most``."""


class RowAssigner:
    """Listens to the hook, and hands rows to the readers of their sequences."""

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


_MAX_ID = 2**31
"""Salted token ids are below this."""


class Readers(NamedTuple):
    """The ``input_tokens`` of a sequence for the pipeline, perhaps salted, and the readers of its rows.

    With a reader of the ``prompt``, the pipeline repeats the prompt before the first new token. ``usable`` is False if
    the new tokens can't be used, because they are sampled without a penalty.
    """

    input_tokens: tuple[int, ...]
    reader: RowReader | None = None
    prompt: PromptReader | None = None
    usable: bool = True


def readers_of(
    sequence: Sequence,
    scoring: PromptScoring | None,
    input_tokens: tuple[int, ...],
    config: openvino_genai.GenerationConfig,
    *,
    number: int,
    width: int,
) -> Readers:
    """Return the readers of a sequence with the request id ``number``; change its ``config`` if its prompt is scored.

    A row has ``width`` logits; 0 if they can't be read.
    """
    sampling = sequence.sampling
    if scoring is not None:
        prompt = PromptReader(input_tokens, scoring.top)
        salted = with_salt(input_tokens, number, width, sampling, scored=True)
        return Readers(salted, RowReader(sampling, sequence.bad_word_tokens), prompt, usable=score_prompt(config))
    if width and needs_rows(sampling):
        return Readers(with_salt(input_tokens, number, width, sampling), RowReader(sampling, sequence.bad_word_tokens))
    return Readers(input_tokens)


def new_request_id(ids: Iterator[int], used: Iterable[int], width: int) -> int:
    """Return the next of ``ids`` whose salt differs from those of the request ids in ``used``."""
    if not width:
        return next(ids)
    used_salts = {number % salts(width) for number in used}
    return next(number for number in ids if number % salts(width) not in used_salts)


def salts(width: int) -> int:
    """Return the number of different salts for token ids. A row has ``width`` logits."""
    return _MAX_ID // width - 1


def with_salt(
    tokens: tuple[int, ...], number: int, width: int, sampling: Sampling, *, scored: bool = False
) -> tuple[int, ...]:
    """Return ``tokens`` with the last one salted, or the first one if the prompt is ``scored``.

    The salt depends on ``number`` and replaces an earlier one; a row has ``width`` logits.
    With a repetition penalty, the last one can't be salted: the pipeline looks up the logits of all prompt tokens.
    """
    salt = (1 + number % salts(width)) * width
    if scored:
        return (tokens[0] % width + salt, *tokens[1:])
    if sampling.repetition_penalty not in (None, 1.0):
        return tokens
    return (*tokens[:-1], tokens[-1] % width + salt)
