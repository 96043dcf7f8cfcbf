"""The engine's table of sequences: those in the pipeline, and those that wait."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

import numpy
import openvino_genai
from numpy.typing import NDArray

from worker.engine.generation import Generation
from worker.openvino.logits.rows import FollowedSequence, Readers
from worker.openvino.stateful import Handle

NO_REASON = openvino_genai.GenerationFinishReason.NONE

NewTokens = tuple[list[int], list[float], openvino_genai.GenerationFinishReason]
"""New tokens, their log probabilities if requested, and why the sequence ended."""


class RunningSequence(FollowedSequence):
    """A sequence that runs in the pipeline. Dropping the last reference to ``handle`` cancels it there."""

    __slots__ = (
        "_begun",
        "_drafts",
        "_echoes",
        "beams",
        "generation",
        "handle",
        "input_tokens",
        "logprobs",
        "proven",
        "repeated",
        "usable",
    )

    def __init__(
        self,
        generation: Generation,
        handle: Handle,
        readers: Readers,
        repeated: int = 0,
        drafts: int = 0,
    ) -> None:
        """``drafts`` is the most draft tokens of a step; 0 without speculation, or if unknown."""
        sequence, sampling = generation.sequence, generation.sequence.sampling
        super().__init__(readers.reader, readers.prompt, searching=sampling.beams > 1, has_images=bool(sequence.images))
        self.generation = generation
        self.handle = handle
        self.beams = sampling.beams
        self.input_tokens, self.usable = readers.input_tokens, readers.usable
        self.logprobs = sampling.logprobs or (self.reader is not None and self.reader.reads)
        self.proven = False
        """Whether it has generated a token. Until then it is a suspect when a step throws."""
        self.repeated = repeated
        """Number of known tokens that the pipeline still has to generate again."""
        self._echoes = self.prompt is not None
        self._drafts, self._begun = drafts, False

    @property
    def number(self) -> int:
        """Number of the sequence."""
        return self.generation.sequence.number

    @property
    def known(self) -> int:
        """Number of its tokens in the pipeline, without those of images."""
        return len(self.generation.sequence.prompt) + len(self.generation.tokens) - self.repeated

    @property
    def excluded(self) -> NDArray[numpy.bool_] | None:
        """Of each token, whether the limits of its JSON text exclude it as the next one; None without a limit."""
        return self.generation.excluded(self.repeated)

    def count_cached(self, past: int, images: int) -> None:
        """Learn that the pipeline computes its prompt from position ``past`` on; ``images``: the tokens of its images,
        0 until all is computed. The lowest position was not cached."""
        generation = self.generation
        generation.cached = past if generation.cached is None else min(generation.cached, past)
        if self.started:
            generation.cached = min(generation.cached, len(generation.sequence.prompt) + images)

    def is_resumable(self, *, sees_images: bool, adjusts_logits: bool) -> bool:
        """Return whether it can leave the pipeline, and be resumed exactly without recomputing all of it.

        Arguments are as in :meth:`Generation.is_stateful`.
        """
        generation = self.generation
        return (
            self.beams == 1
            and generation.prompt_scoring is None
            and not generation.sequence.images
            and not generation.is_stateful(sees_images=sees_images, adjusts_logits=adjusts_logits)
        )

    def generated(self, most: int) -> Sequence[int]:
        """Return the last tokens that the pipeline has generated or continues, at most ``most``."""
        end = len(self.generation.tokens) - self.repeated
        return self.generation.tokens[max(0, end - most) : end]

    def read(self) -> NewTokens:
        """Return the new output. Hot path: called once per sequence and step."""
        handle = self.handle
        tokens: list[int] = []
        logprobs: list[float] = []
        finish = NO_REASON
        while handle.can_read():  # otherwise read() blocks, and with it the process
            for chunk in handle.read().values():
                tokens += chunk.generated_ids
                if self.logprobs:
                    logprobs += chunk.generated_log_probs
                finish = chunk.finish_reason
        if self._echoes and tokens:
            self._echoes = False
            del tokens[: len(self.input_tokens)]
            # After a preemption, the number of log probabilities of the prompt may differ from that of its tokens.
            del logprobs[: len(logprobs) - len(tokens)]
        return tokens, logprobs, finish

    def speculated(self, new: int) -> tuple[int, int]:
        """Return the numbers of draft and of accepted tokens of the step in which ``new`` ones were read.

        They are not appended yet. The step of the prompt drafts nothing, and no step the very last token.
        """
        begun, self._begun = self._begun, self._begun or bool(new)
        if not self._drafts or not new or not begun:
            return 0, 0
        return min(self._drafts, self.generation.remaining + self.repeated - 1), new - 1

    def skip_repeated(self, tokens: list[int], logprobs: list[float]) -> bool:
        """Remove the leading ``tokens`` that repeat known ones; return whether they do repeat them."""
        known = self.generation.tokens[-self.repeated :]
        count = min(len(known), len(tokens))
        if not tokens or tokens[:count] != known[:count]:
            return False
        self.repeated -= count
        del tokens[:count], logprobs[:count]
        return True


class Waiting(Enum):
    """Why a sequence is not in the pipeline."""

    COMPLETE = auto()
    """It was complete when it arrived: its last output is due."""
    GRAMMAR = auto()
    """Its grammar is compiled first (:class:`~worker.openvino.arrivals.GrammarArrivals`)."""
    IMAGES = auto()
    """Its images are encoded when it starts (:class:`~worker.openvino.arrivals.ImageArrivals`)."""
    SUSPECT = auto()
    """It may have made the pipeline throw, and is tried alone (:class:`~worker.openvino.recovery.Recovery`)."""
    PREEMPTED = auto()
    """It is resumed when the supervisor says so."""


class WaitingSequence(NamedTuple):
    """A sequence that waits. ``protected`` are the sequences that its start must not delay."""

    generation: Generation
    reason: Waiting
    protected: frozenset[int] = frozenset()


class SequenceTable:
    """All sequences of the engine by number. Each is in the pipeline, or waits for one reason."""

    def __init__(self) -> None:
        self.running: dict[int, RunningSequence] = {}
        """Those in the pipeline, in the order in which they were added to it."""
        self._waiting: dict[int, WaitingSequence] = {}

    @property
    def has_work(self) -> bool:
        """Whether a sequence is running or can start."""
        return bool(self.running) or any(waiting.reason is not Waiting.PREEMPTED for waiting in self._waiting.values())

    def waiting(self, reason: Waiting) -> dict[int, WaitingSequence]:
        """Return the sequences that wait for this reason, in the order in which they began to."""
        return {number: waiting for number, waiting in self._waiting.items() if waiting.reason is reason}

    def wait(self, generation: Generation, reason: Waiting, protected: frozenset[int] = frozenset()) -> None:
        """Record that a sequence waits."""
        self.remove(generation.sequence.number)
        self._waiting[generation.sequence.number] = WaitingSequence(generation, reason, protected)

    def run(self, running: RunningSequence) -> None:
        """Record that a sequence is in the pipeline."""
        self.remove(running.number)
        self.running[running.number] = running

    def remove(self, number: int) -> RunningSequence | None:
        """Forget a sequence; return it if it was in the pipeline."""
        self._waiting.pop(number, None)
        return self.running.pop(number, None)
