"""Counts the prompt tokens that the prefix cache provides, which the pipeline does not report.

The logits hook sees which positions a step computes. The first one of a prompt is the number of tokens that were
cached. Neither tokens nor positions name their sequence, but the pipeline's schedule does:

- A step computes sequences one after the other, and prompts in the order in which they were added.
- The last token of a whole prompt is sampled from, so its sequence has output after the step.
- Only a step of the maximum size computes a prompt in part: the first one that it does not complete.

All tokens are compared with the prompt. What does not fit counts as 0 cached tokens: a prompt that is computed in
parts because the KV cache is full, or two prompts that can't be distinguished.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy

from worker.engine.logits.operation import Key, StepInput


class Prefill(Protocol):
    """A sequence without output, as far as its prompt is known."""

    expected: int | None
    """The position at which the prefill should continue; None until it has started."""
    cached: int | None
    """Number of tokens from the cache; None until it is known."""

    @property
    def input_tokens(self) -> tuple[int, ...]:
        """The pipeline's input: the prompt, perhaps with a salted token."""

    @property
    def number(self) -> int:
        """Number of the sequence."""

    @property
    def searching(self) -> bool:
        """Whether it is a beam search, which has output only at its end."""

    def has_output(self) -> bool:
        """Return whether the pipeline has output of it."""


class Segment(NamedTuple):
    """Consecutive positions of one sequence in a step; ``sampled``: the next token is sampled from its last one."""

    position: int
    tokens: tuple[int, ...]
    sampled: bool

    @property
    def end(self) -> int:
        """The position after its last one."""
        return self.position + len(self.tokens)

    @property
    def key(self) -> Key:
        """Its last token, and that token's position."""
        return self.tokens[-1], self.end - 1


def segments_of(step: StepInput) -> Iterator[Segment]:
    """Split what a step computes."""
    sampled = frozenset(step.sampled.tolist())
    gaps = numpy.flatnonzero(numpy.diff(step.positions) != 1).tolist()
    tokens = step.tokens.tolist()
    begin = 0
    for last in sorted(sampled.union(gaps, (len(tokens) - 1,))):
        yield Segment(int(step.positions[begin]), tuple(tokens[begin : last + 1]), last in sampled)
        begin = last + 1


class PrefillTracker:
    """The sequences that have no output yet."""

    def __init__(self, sequences: Mapping[int, Prefill], max_tokens: int) -> None:
        """``sequences`` are those in the pipeline. ``max_tokens`` is the maximum number of tokens in a step; 0
        if there is nothing to count: no prefix cache, or no hook."""
        self._sequences = sequences
        self._max_tokens = max_tokens
        self._waiting: list[Prefill] = []
        self._step: StepInput | None = None

    @property
    def waiting(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def add(self, prefill: Prefill) -> None:
        """Add a new sequence, in the order in which the pipeline gets them."""
        if self._max_tokens:
            self._waiting.append(prefill)

    def record_step(self, step: StepInput) -> None:
        """Record the input of the current step, which may still fail."""
        self._step = step.copy() if self._waiting else None

    def commit_step(self) -> None:
        """Count the cached tokens of the recorded step, which has succeeded. Call it before outputs are read."""
        step, self._step = self._step, None
        if step is None:
            return
        waiting = [prefill for prefill in self._waiting if self._sequences.get(prefill.number) is prefill]
        sampled: defaultdict[Key, list[Segment]] = defaultdict(list)
        partial: list[Segment] = []
        for segment in segments_of(step):
            if segment.sampled:
                sampled[segment.key].append(segment)
            else:
                partial.append(segment)
        complete = [
            prefill
            for prefill in waiting
            if prefill.has_output() or (prefill.searching and _last_key(prefill) in sampled)
        ]
        self._waiting = waiting[len(complete) :]
        if complete != waiting[: len(complete)]:
            _assume_uncached(waiting)
            self._waiting = []
            return
        by_key: defaultdict[Key, list[Prefill]] = defaultdict(list)
        for prefill in complete:
            by_key[_last_key(prefill)].append(prefill)
        for key, prefills in by_key.items():
            if len(sampled[key]) == len(prefills):
                for prefill, segment in zip(prefills, sampled[key], strict=True):
                    _advance(prefill, segment)
            else:
                _assume_uncached(prefills)
        if len(partial) > 1 or (partial and len(step.tokens) < self._max_tokens):
            _assume_uncached(self._waiting)
        elif partial and self._waiting and _matches(self._waiting[0], partial[0]):
            _advance(self._waiting[0], partial[0])


def _last_key(prefill: Prefill) -> Key:
    return prefill.input_tokens[-1], len(prefill.input_tokens) - 1


def _matches(prefill: Prefill, segment: Segment) -> bool:
    return prefill.input_tokens[segment.position : segment.end] == segment.tokens


def _advance(prefill: Prefill, segment: Segment) -> None:
    """Record that a segment of a prompt was computed. After a preemption by the pipeline, it may be an earlier one."""
    position = segment.position
    known = position if prefill.cached is None else prefill.cached
    gap = prefill.expected not in (None, position) and position > known
    prefill.cached = 0 if gap or not _matches(prefill, segment) else min(known, position)
    prefill.expected = segment.end


def _assume_uncached(prefills: Sequence[Prefill]) -> None:
    for prefill in prefills:
        prefill.cached = 0
