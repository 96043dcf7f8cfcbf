"""A sequence that runs in the pipeline."""

from collections.abc import Sequence

import openvino_genai
from openvino_genai.py_openvino_genai import GenerationHandle

from worker.engine.generation import Generation
from worker.engine.logits.rows import Readers

NO_REASON = openvino_genai.GenerationFinishReason.NONE

NewTokens = tuple[list[int], list[float], openvino_genai.GenerationFinishReason]
"""New tokens, their log probabilities if requested, and why the sequence ended."""


class RunningSequence:
    """A sequence that runs in the pipeline. Dropping the last reference to ``handle`` cancels it there."""

    __slots__ = (
        "_echoes",
        "beams",
        "expected",
        "generation",
        "handle",
        "input_tokens",
        "logprobs",
        "prompt",
        "proven",
        "reader",
        "repeated",
        "request_id",
        "usable",
    )

    def __init__(
        self,
        generation: Generation,
        handle: GenerationHandle,
        request_id: int,
        readers: Readers,
        repeated: int = 0,
    ) -> None:
        sampling = generation.sequence.sampling
        self.generation = generation
        self.handle = handle
        self.request_id = request_id
        self.beams = sampling.beams
        self.input_tokens, self.reader, self.prompt, self.usable = readers
        if self.prompt is None:
            generation.input_tokens = self.input_tokens
        self.logprobs = sampling.logprobs or self.reader is not None
        self.proven = False
        """Whether it has generated a token. Until then it is a suspect when a step throws."""
        self.repeated = repeated
        """Number of known tokens that the pipeline still has to generate again."""
        self.expected: int | None = None
        """The position at which its prefill should continue; None until it has started."""
        self._echoes = self.prompt is not None

    @property
    def number(self) -> int:
        """Number of the sequence."""
        return self.generation.sequence.number

    @property
    def searching(self) -> bool:
        """Whether it is a beam search, which has output only at its end."""
        return self.beams > 1

    @property
    def cached(self) -> int | None:
        """Number of prompt tokens from the prefix cache; None until it is known."""
        return self.generation.cached

    @cached.setter
    def cached(self, tokens: int | None) -> None:
        prompt = len(self.generation.sequence.prompt)
        self.generation.cached = tokens if tokens is None else min(tokens, prompt)

    def has_output(self) -> bool:
        """Return whether the pipeline has output to read."""
        return bool(self.handle.can_read())

    def token_at(self, position: int) -> int:
        """Return the token at ``position`` of the pipeline's input or output."""
        if position < len(self.input_tokens):
            return self.input_tokens[position]
        return self.generation.tokens[position - len(self.generation.sequence.prompt)]

    def last(self) -> tuple[int, int]:
        """Return the last token of the sequence in the pipeline, and its position."""
        generation = self.generation
        position = len(generation.sequence.prompt) + len(generation.tokens) - self.repeated - 1
        return self.token_at(position), position

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

    def skip_repeated(self, tokens: list[int], logprobs: list[float]) -> bool:
        """Remove the leading ``tokens`` that repeat known ones; return whether they do repeat them."""
        known = self.generation.tokens[-self.repeated :]
        count = min(len(known), len(tokens))
        if not tokens or tokens[:count] != known[:count]:
            return False
        self.repeated -= count
        del tokens[:count], logprobs[:count]
        return True
