"""Counts the tokens of prompts that come from the prefix cache, which the pipeline does not report.

The logits tap sees which positions a step computes. The first one of a prompt is the number of tokens that were cached.
Neither tokens nor positions name their sequence, but the pipeline's schedule does:

- A step computes sequences one after the other, and prompts in the order in which they were added.
- The last token of a whole prompt is sampled from, so its sequence has output after the step.
- Only a step of the maximum size computes a prompt in part: the first one that it does not complete.

All tokens are compared with the prompt. What does not fit counts as 0 cached tokens: a prompt that is computed in
parts because the KV cache is full, or two that can't be told apart.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy

from worker.engine.logits.matching import Key
from worker.engine.logits.operation import StepInput


class Prefill(Protocol):
    """A sequence without output, as far as its prompt is known."""

    expected: int | None
    """The position at which the pipeline should go on; None until it has begun."""
    cached: int | None
    """Number of tokens from the cache; None until it is known."""

    @property
    def given(self) -> tuple[int, ...]:
        """The prompt that the pipeline was given."""

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


class Prefills:
    """The sequences that have no output yet."""

    def __init__(self, sequences: Mapping[int, Prefill], most_tokens: int) -> None:
        """``sequences`` are those in the pipeline. ``most_tokens`` is the maximum number of tokens in a step; 0
        if there is nothing to count: no prefix cache, or no tap."""
        self._sequences = sequences
        self._most_tokens = most_tokens
        self._waiting: list[Prefill] = []
        self._step: StepInput | None = None

    @property
    def waiting(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def add(self, prefill: Prefill) -> None:
        """Add a new sequence, in the order in which the pipeline gets them."""
        if self._most_tokens:
            self._waiting.append(prefill)

    def see(self, step: StepInput) -> None:
        """Keep what the step under way computes. It has not succeeded yet."""
        self._step = step.copy() if self._waiting else None

    def settle(self) -> None:
        """Take the step into account that has succeeded, before its outputs are read."""
        step, self._step = self._step, None
        if step is None:
            return
        waiting = [one for one in self._waiting if self._sequences.get(one.number) is one]
        sampled: defaultdict[Key, list[Segment]] = defaultdict(list)
        partial: list[Segment] = []
        for segment in segments_of(step):
            if segment.sampled:
                sampled[segment.key].append(segment)
            else:
                partial.append(segment)
        complete = [one for one in waiting if one.has_output() or (one.searching and _key(one) in sampled)]
        self._waiting = waiting[len(complete) :]
        if complete != waiting[: len(complete)]:
            _lose(waiting)
            self._waiting = []
            return
        same: defaultdict[Key, list[Prefill]] = defaultdict(list)
        for one in complete:
            same[_key(one)].append(one)
        for key, ones in same.items():
            if len(sampled[key]) == len(ones):
                for one, segment in zip(ones, sampled[key], strict=True):
                    _advance(one, segment)
            else:
                _lose(ones)
        if len(partial) > 1 or (partial and len(step.tokens) < self._most_tokens):
            _lose(self._waiting)
        elif partial and self._waiting and _fits(self._waiting[0], partial[0]):
            _advance(self._waiting[0], partial[0])


def _key(one: Prefill) -> Key:
    return one.given[-1], len(one.given) - 1


def _fits(one: Prefill, segment: Segment) -> bool:
    return one.given[segment.position : segment.end] == segment.tokens


def _advance(one: Prefill, segment: Segment) -> None:
    """Note that a segment of a prompt was computed. It may be an earlier one, after a preemption by the pipeline."""
    position = segment.position
    known = position if one.cached is None else one.cached
    lost = one.expected not in (None, position) and position > known
    one.cached = 0 if lost or not _fits(one, segment) else min(known, position)
    one.expected = segment.end


def _lose(ones: Sequence[Prefill]) -> None:
    for one in ones:
        one.cached = 0
