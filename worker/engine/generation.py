"""The state of one sequence: its token ids, their text, and its end condition."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from shared.protocol.events import Delta, TopToken
from worker.engine.protocol import Ending, EngineSequence, Output, StepOutput, StopReason
from worker.engine.reasoning import ReasoningBudget
from worker.engine.stops import StopSearch
from worker.engine.text import TextStream, Vocabulary

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class TextLimits(Protocol):
    """Enforces limits of the text that a grammar does not, as :class:`~worker.grammar.lengths.LengthChecker` does."""

    def violates(self, text: str) -> bool:
        """Read the next text; return whether it exceeds a limit."""

    def excluded(self, unread: int) -> "NDArray[numpy.bool_] | None":
        """Return of each token whether it must not be next; None if all may. ``unread`` characters have begun."""


class Generation:
    """Turns a sequence's tokens into outputs, and decides when it ends.

    The token that ends a sequence counts as generated; its text is shown only with ``include_stop``.
    """

    def __init__(
        self,
        sequence: EngineSequence,
        vocabulary: Vocabulary,
        *,
        end_tokens: Iterable[int],
        end_texts: tuple[str, ...] = (),
        limit: int,
        limits: TextLimits | None = None,
    ) -> None:
        """``end_tokens`` are the model's end-of-text ids, and ``end_texts`` its stop strings, in addition to those in
        the sampling. ``limit`` is the maximum number of generated tokens, including those in ``sequence.generated``.
        ``limits`` enforces ``sequence.length_limits``.
        """
        sampling = sequence.sampling
        self.sequence = sequence
        self._vocabulary = vocabulary
        self.tokens: list[int] = []
        self.stop_reason: StopReason | None = None
        """Why the sequence has ended, or None. A resumed sequence may be complete from the start."""
        self.prompt_scoring = sampling.prompt_scoring
        """The log probabilities of the prompt that were requested and not reported yet, or None."""
        self.cached: int | None = None if self.prompt_scoring is None else 0
        """Number of prompt tokens from the prefix cache, None until it is known. A scored prompt has none."""
        self._limit = limit
        self._min_tokens = sampling.min_tokens or 0
        self._stop_tokens = frozenset(sampling.stop_token_ids)
        if not sampling.ignore_eos:
            self._stop_tokens = self._stop_tokens.union(end_tokens)
        texts = sampling.stop if sampling.ignore_eos else (*sampling.stop, *end_texts)
        stops: StopSearch | None = None
        if texts:
            parser = sequence.markup.parser() if sequence.markup is not None else None
            stops = StopSearch(texts, include=sampling.include_stop, parser=parser)
        self._stream = TextStream(
            vocabulary,
            stops=stops,
            min_tokens=self._min_tokens,
            skip_special_tokens=sampling.skip_special_tokens,
            shown=sequence.shown_tokens,
            keep_first_space=self._constrained_from_start,
        )
        self._lengths = limits
        limit_of_reasoning = sequence.reasoning_limit
        self._budget = ReasoningBudget(limit_of_reasoning, vocabulary.piece) if limit_of_reasoning else None
        self._push(sequence.generated)

    @property
    def remaining(self) -> int:
        """Maximum number of tokens still to be generated."""
        return self._limit - len(self.tokens)

    def excluded(self, repeated: int = 0) -> "NDArray[numpy.bool_] | None":
        """Return of each token whether a limit excludes it as the next one; None without a limit.

        The limits are those of the JSON text, and the budget of reasoning, which ends between two characters, and after
        which there is content.

        ``repeated`` is the number of the last tokens that the pipeline generates again: the next one is known.
        """
        limits, unread = self._lengths, self._stream.unread
        if limits is None and self._budget is None:
            return None
        known = self.tokens[-repeated] if repeated else self._budget.next if self._budget and not unread else None
        if known is not None:
            return self._mask([known], others=True)
        excluded = self._mask(self._stop_tokens) if self._budget and self._budget.cut else None
        limited = None if limits is None or unread is None else limits.excluded(unread)
        return excluded if limited is None else limited if excluded is None else excluded | limited

    def _mask(self, tokens: Iterable[int], *, others: bool = False) -> "NDArray[numpy.bool_]":
        """Return a mask of ``tokens``, or of all ``others``."""
        import numpy  # not at the start of a process without logits

        mask = numpy.full(len(self._vocabulary), others)
        mask[[token for token in tokens if token < len(mask)]] = not others
        return mask

    @property
    def is_constrained(self) -> bool:
        """Whether the constraint applies already. Then the sequence can't be continued from token ids alone."""
        if self.sequence.grammar is None or self._constrained_from_start:
            return self._constrained_from_start
        text = b"".join(map(self._vocabulary.piece, self.tokens))
        return any(_may_contain(text, marker.encode()) for marker in self.sequence.triggers)

    @property
    def _constrained_from_start(self) -> bool:
        return self.sequence.grammar is not None and not self.sequence.triggers

    def is_stateful(self, *, sees_images: bool, adjusts_logits: bool) -> bool:
        """Return whether the pipeline can continue the sequence correctly only if it generated the tokens itself.

        ``sees_images``: the pipeline is that of a vision-language model. ``adjusts_logits``: penalties are applied by
        the logits hook, which counts all tokens.
        """
        sampling = self.sequence.sampling
        # A vision-language model's pipeline does not know the prompt's tokens, so its repetition penalty ignores them.
        penalty = sees_images and sampling.repetition_penalty not in (None, 1)
        counts = sampling.frequency_penalty or sampling.presence_penalty or penalty
        return bool(self.is_constrained or (counts and not adjusts_logits))

    def append(
        self,
        tokens: Sequence[int],
        logprobs: Sequence[float],
        reason: StopReason | None = None,
        top: Sequence[tuple[TopToken, ...]] = (),
    ) -> StepOutput:
        """Append a step's tokens and return the output. Tokens after the sequence's end are ignored.

        ``logprobs`` and ``top`` may be longer than ``tokens``. ``reason`` is set if these are the last tokens according
        to the engine; ``tokens`` may then be empty.
        """
        position = len(self.tokens)
        text = self._push(tokens)
        self.stop_reason = self.stop_reason or reason
        if self.stop_reason is not None:
            text += self._stream.finish(cut=self.stop_reason == "length")
            if self._stream.stop:
                self.stop_reason = "stop"
        appended = tuple(tokens[: len(self.tokens) - position])
        delta: Delta | None = None
        if self.sequence.sampling.logprobs and appended:
            pieces = tuple(self._stream.piece(token) for token in appended)
            delta = Delta(
                position, appended, text, tuple(logprobs[: len(appended)]), pieces, tuple(top[: len(appended)])
            )
        elif appended or text:
            delta = Delta(position, appended, text)
        ending = Ending(stop=self._stream.stop) if self._stream.stop in self.sequence.sampling.stop else None
        return Output(self.sequence.number, len(self.tokens), delta, self.stop_reason, ending, self.cached or 0)

    def _push(self, tokens: Iterable[int]) -> str:
        text = ""
        for token in tokens:
            if self.stop_reason is not None or len(self.tokens) >= self._limit:
                break
            self.tokens.append(token)
            if token in self._stop_tokens and len(self.tokens) > self._min_tokens:
                self.stop_reason = "stop"
                if not self.sequence.sampling.include_stop:
                    break
            if self._budget is not None:
                self._budget.push(token)
            shown = self._stream.push(token)
            text += shown
            if self._stream.stop:
                self.stop_reason = "stop"
            elif self._lengths is not None and self._lengths.violates(shown):
                self.stop_reason = "length"
        if self.stop_reason is None and len(self.tokens) >= self._limit:
            self.stop_reason = "length"
        return text


def _may_contain(text: bytes, marker: bytes) -> bool:
    """Return whether ``text`` contains the marker, or ends with a prefix of it."""
    return marker in text or any(text.endswith(marker[:length]) for length in range(1, len(marker)))
