"""The state of one sequence: its token ids, their text, and its end condition."""

from collections.abc import Iterable
from collections.abc import Sequence as Series

from shared.protocol.events import Delta, TopToken
from worker.engine.interface import Ending, Output, Sequence, StepOutput, StopReason
from worker.engine.text import TextStream, Vocabulary
from worker.json_schema.lengths import LengthWatch


class Generation:
    """Turns a sequence's tokens into outputs, and decides when it ends.

    The token that ends a sequence counts as generated; its text is shown only with ``include_stop``.
    """

    def __init__(self, sequence: Sequence, vocabulary: Vocabulary, *, end_tokens: Iterable[int], limit: int) -> None:
        """``end_tokens`` are the model's end-of-text ids, in addition to those in the sampling.

        ``limit`` is the maximum number of generated tokens, including those in ``sequence.generated``.
        """
        sampling = sequence.sampling
        self.sequence = sequence
        self._vocabulary = vocabulary
        self.tokens: list[int] = []
        self.complete: StopReason | None = None
        """Why the sequence has ended, or None. A resumed sequence may be complete from the start."""
        self.scoring = sampling.prompt_scoring
        """What is still to be found out about the prompt's log probabilities, or None."""
        self.given: tuple[int, ...] = ()
        """The tokens that the pipeline was last given: some may be salted (:mod:`worker.engine.logits.readers`)."""
        self.cached: int | None = None if self.scoring is None else 0
        """Number of prompt tokens from the prefix cache, None until it is known. A scored prompt has none."""
        self._limit = limit
        self._min_tokens = sampling.min_tokens or 0
        self._stop_tokens = frozenset(sampling.stop_token_ids)
        if not sampling.ignore_eos:
            self._stop_tokens = self._stop_tokens.union(end_tokens)
        self._stream = TextStream(
            vocabulary,
            stop=sampling.stop,
            include_stop=sampling.include_stop,
            skip_special_tokens=sampling.skip_special_tokens,
            shown=sequence.shown_tokens,
            whole=self._constrained_from_start,
        )
        self._lengths = LengthWatch(sequence.bounded) if sequence.bounded else None
        self._push(sequence.generated)

    @property
    def remaining(self) -> int:
        """Maximum number of tokens still to be generated."""
        return self._limit - len(self.tokens)

    def as_given(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Return ``tokens`` with the salts of those that were given before, to find them in the prefix cache."""
        return self.given[: len(tokens)] + tokens[len(self.given) :]

    @property
    def held(self) -> bool:
        """Whether a constraint is in force. From then on the sequence can't be continued from token ids alone."""
        if self.sequence.constraint is None or self._constrained_from_start:
            return self._constrained_from_start
        text = b"".join(map(self._vocabulary.piece, self.tokens))
        return any(_has_begun(text, marker.encode()) for marker in self.sequence.free_until)

    @property
    def _constrained_from_start(self) -> bool:
        return self.sequence.constraint is not None and not self.sequence.free_until

    def is_stateful(self, *, sees_images: bool) -> bool:
        """Return whether the pipeline can continue the sequence correctly only if it generated the tokens itself.

        ``sees_images``: the pipeline is that of a vision-language model.
        """
        sampling = self.sequence.sampling
        # A vision-language model's pipeline does not know the prompt's tokens, so a repetition penalty ignores them.
        penalty = sees_images and sampling.repetition_penalty not in (None, 1)
        return bool(self.held or sampling.frequency_penalty or sampling.presence_penalty or penalty)

    def take(
        self,
        tokens: Series[int],
        logprobs: Series[float],
        reason: StopReason | None = None,
        top: Series[tuple[TopToken, ...]] = (),
    ) -> StepOutput:
        """Append a step's tokens and return the output. Tokens after the sequence's end are ignored.

        ``logprobs`` and ``top`` may be longer than ``tokens``. ``reason`` is set if these are the last tokens according
        to the engine; ``tokens`` may then be empty.
        """
        position = len(self.tokens)
        text = self._push(tokens)
        self.complete = self.complete or reason
        if self.complete is not None:
            text += self._stream.finish()
        taken = tuple(tokens[: len(self.tokens) - position])
        delta: Delta | None = None
        if self.sequence.sampling.logprobs and taken:
            pieces = tuple(self._stream.piece(token) for token in taken)
            delta = Delta(position, taken, text, tuple(logprobs[: len(taken)]), pieces, tuple(top[: len(taken)]))
        elif taken or text:
            delta = Delta(position, taken, text)
        ending = Ending(stop=self._stream.stop) if self._stream.stop else None
        return Output(self.sequence.number, len(self.tokens), delta, self.complete, ending, self.cached or 0)

    def _push(self, tokens: Iterable[int]) -> str:
        text = ""
        for token in tokens:
            if self.complete is not None:
                break
            self.tokens.append(token)
            if token in self._stop_tokens and len(self.tokens) > self._min_tokens:
                self.complete = "stop"
                if not self.sequence.sampling.include_stop:
                    break
            shown = self._stream.push(token)
            text += shown
            if self._stream.stop:
                self.complete = "stop"
            elif self._lengths is not None and self._lengths.exceeds(shown):
                self.complete = "length"
        if self.complete is None and len(self.tokens) >= self._limit:
            self.complete = "length"
        return text


def _has_begun(text: bytes, marker: bytes) -> bool:
    """Return whether ``text`` contains the marker, or ends with a prefix of it."""
    return marker in text or any(text.endswith(marker[:length]) for length in range(1, len(marker)))
