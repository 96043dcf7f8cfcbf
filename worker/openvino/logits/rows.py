"""Assigns the rows of logits that the hook sees to sequences.

A step tells the model which blocks of the KV cache each of its sequences has, and how many tokens are in them. A
sequence keeps its blocks from step to step. A new one, or one whose blocks the pipeline took away, is known by its
length and by its place: the pipeline computes sequences in the order in which they were added, prompts last.

For example, a step that computes token 7 of A, whose blocks are 0 and 1, and tokens 0 to 2 of the prompt of B, of which
the last is sampled, is read as ``StepSegment(past=7, end=8, blocks=[0, 1], rows=range(0, 1))`` and
``StepSegment(past=0, end=3, blocks=[2], rows=range(1, 2))``. Row 0 goes to the reader of A, row 1 to that of B.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy
import openvino_genai
from numpy.typing import NDArray

from shared.protocol.request import PromptScoring
from worker.engine.protocol import EngineSequence
from worker.openvino.logits.operation import Logits, StepInput
from worker.openvino.logits.readers import Bias, Penalties, PromptReader, RowReader
from worker.openvino.sampling import score_prompt


class StepSegment(NamedTuple):
    """What a step computes of one sequence: the positions from ``past`` to ``end``, the last of which have rows.

    ``blocks`` are those of its KV cache after the step, ``rows`` the indices of its rows of logits.
    """

    past: int
    end: int
    blocks: list[int]
    rows: range


def segments_of(step: StepInput) -> list[StepSegment]:
    """Split what a step computes, in its order."""
    past, begins, bounds = step.past_lens.tolist(), step.subsequence_begins, step.block_indices_begins.tolist()
    rows = numpy.searchsorted(step.sampled_tokens_indices, begins).tolist()
    ends = (step.past_lens + numpy.diff(begins)).tolist()
    blocks = step.block_indices.tolist()
    return [
        StepSegment(past[at], ends[at], blocks[bounds[at] : bounds[at + 1]], range(rows[at], rows[at + 1]))
        for at in range(len(past))
    ]


class FollowedSequence(ABC):
    """A sequence in the pipeline, as far as the hook follows it.

    ``reader`` is None if it needs no rows. With ``prompt``, it has a row for each token of its prompt; ``reader`` is
    then set too.
    """

    __slots__ = ("_blocks", "_images", "prompt", "reader", "searching", "started")

    def __init__(
        self, reader: RowReader | None, prompt: PromptReader | None, *, searching: bool, has_images: bool
    ) -> None:
        """``searching``: it is a beam search, of which a step computes several beams."""
        self.reader = reader
        self.prompt = prompt
        self.searching = searching
        self.started = False
        """Whether its prompt is computed."""
        self._blocks: list[int] = []
        self._images: int | None = None if has_images else 0
        """Number of tokens that only the pipeline knows; None until its prompt is computed."""

    @property
    @abstractmethod
    def known(self) -> int:
        """Number of its tokens in the pipeline, without those of images."""

    @abstractmethod
    def count_cached(self, past: int, images: int) -> None:
        """Learn that the pipeline computes its prompt from position ``past`` on; ``images``: the tokens of its images,
        0 until all is computed."""

    @abstractmethod
    def generated(self, most: int) -> Sequence[int]:
        """Return its last generated tokens, at most ``most``."""

    @property
    def excluded(self) -> NDArray[numpy.bool_] | None:
        """Of each token, whether the limits of its JSON text exclude it as the next one; None without a limit."""
        return None

    def continues(self, segment: StepSegment) -> bool:
        """Return whether a segment has the blocks of this sequence. The last one may have been shared, and copied."""
        blocks = self._blocks
        if self.searching and self.started:
            return segment.blocks[0] == blocks[0] and len(segment.rows) == 1 == segment.end - segment.past
        return bool(blocks) and self._fits(segment) and segment.blocks[: len(blocks) - 1] == blocks[:-1]

    def begins(self, segment: StepSegment) -> bool:
        """Return whether a segment may be the first one of this sequence, or of what the pipeline computes again."""
        return (not self._blocks or not segment.past or segment.blocks[0] == self._blocks[0]) and self._fits(segment)

    def _fits(self, segment: StepSegment) -> bool:
        """Return whether a segment may be this sequence's by its length."""
        if self._images is None:
            return True
        length = self.known + self._images
        if self.prompt is not None and not self.prompt.complete:
            return segment.end <= length
        # With speculation, the tokens after the last known one have rows too.
        return segment.end - max(len(segment.rows) - 1, 0) == length if segment.rows else segment.end < length

    def follow(self, segment: StepSegment) -> None:
        """Learn from a segment of this sequence."""
        self._blocks = segment.blocks
        if self.started:
            return
        # With a draft model, draft tokens may follow the prompt.
        unknown = segment.end - self.known - (len(segment.rows) - 1 if self.prompt is None else 0)
        if segment.rows and self._images in (None, unknown):
            self._images = unknown
            self.started = True
        self.count_cached(segment.past, self._images or 0)


def owners(
    sequences: Sequence[FollowedSequence], segments: list[StepSegment], *, resting: bool = False
) -> Iterator[tuple[FollowedSequence, StepSegment]]:
    """Return the segments with the sequences that they belong to, both in the pipeline's order.

    ``resting``: a step that computes prompts computes nothing else, and no sequence loses its blocks.
    """
    prompts = resting and any(segment.end - segment.past > len(segment.rows) for segment in segments)
    left = [sequence for sequence in sequences if not (prompts and sequence.started)]
    unknown = []
    for segment in segments:
        owner = next((sequence for sequence in left if sequence.continues(segment)), None)
        if owner is None:
            unknown.append(segment)
            continue
        if not owner.searching:
            left.remove(owner)
        yield owner, segment
    for segment in unknown:
        owner = next((sequence for sequence in left if sequence.begins(segment)), None)
        if owner is not None:
            left.remove(owner)
            yield owner, segment


class RowAssigner:
    """Listens to the hook, and hands rows to the readers of their sequences."""

    def __init__(self, sequences: Mapping[int, FollowedSequence], *, resting: bool = False) -> None:
        """``sequences`` are those in the pipeline, in the order in which they were added. ``resting``: see
        :func:`owners`."""
        self._sequences = sequences
        self._resting = resting
        self.width = 0
        """Number of logits in a row, at least the size of the vocabulary; 0 until the first one."""

    def wants_rows(self) -> bool:
        """Return whether a sequence needs its row, or its prompt is not computed yet."""
        return any(sequence.reader is not None or not sequence.started for sequence in self._sequences.values())

    def on_logits(self, logits: Logits, step: StepInput) -> None:
        """Hand out the rows of a step, and add biases to them."""
        self.width = logits.shape[1]
        sequences = list(self._sequences.values())
        for sequence in sequences:
            if sequence.reader is not None:
                sequence.reader.forget()
        for sequence, segment in owners(sequences, segments_of(step), resting=self._resting):
            sequence.follow(segment)
            if sequence.reader is None or not segment.rows:
                continue
            rows = logits[segment.rows.start : segment.rows.stop]
            if sequence.prompt is not None and not sequence.prompt.complete:
                sequence.prompt.keep(segment.end - len(rows), rows)
                rows = rows[-1:]
            if not sequence.started:
                continue
            sequence.reader.keep(rows)
            if bias := sequence.reader.bias:
                bias.prepare(sequence.generated(bias.lookback), sequence.excluded)
                for row in rows:
                    bias.add_to(row)


class Readers(NamedTuple):
    """The ``input_tokens`` of a sequence for the pipeline, and the readers of its rows.

    With a reader of the ``prompt``, the pipeline repeats the prompt before the first new token. ``usable`` is False if
    the new tokens can't be used, because they are sampled without a penalty.
    """

    input_tokens: tuple[int, ...]
    reader: RowReader | None = None
    prompt: PromptReader | None = None
    usable: bool = True


_MAX_ID = 2**31
"""Salted token ids are below this."""


def readers_of(
    sequence: EngineSequence,
    scoring: PromptScoring | None,
    input_tokens: tuple[int, ...],
    config: openvino_genai.GenerationConfig,
    *,
    number: int,
    width: int,
    logprobs: bool = False,
    adjusts_logits: bool = True,
) -> Readers:
    """Return the readers of a sequence with the request id ``number``; change its ``config`` if its prompt is scored.

    A row has ``width`` logits; 0 if they can't be read. ``logprobs``: log probabilities of tokens come from their rows,
    because the pipeline reports none. ``adjusts_logits``: limits of its JSON text and its penalties
    are applied. The first token of a scored prompt is salted with a multiple of the width, which the graph removes, so
    that the prompt differs from all that are cached.
    """
    limited = adjusts_logits and bool(sequence.length_limits or sequence.reasoning_limit)
    penalties = Penalties.of(sequence.sampling, sequence.prompt) if adjusts_logits and width else None
    adjusted = limited or penalties is not None
    wanted = scoring or adjusted or sequence.sampling.rows_param or (logprobs and sequence.sampling.logprobs)
    if not width or not wanted:
        return Readers(input_tokens)
    bias = Bias(sequence.sampling, sequence.bad_word_tokens, limited=limited, penalties=penalties)
    reader = RowReader(sequence.sampling, bias)
    reader.reads = reader.reads or scoring is not None
    if scoring is None:
        return Readers(input_tokens, reader)
    salt = (1 + number % (_MAX_ID // width - 1)) * width
    salted = (input_tokens[0] + salt, *input_tokens[1:])
    return Readers(salted, reader, PromptReader(input_tokens, scoring.top), usable=score_prompt(config))
