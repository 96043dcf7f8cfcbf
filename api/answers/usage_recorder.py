"""What is counted while an answer comes."""

import time

from api.dialects.interface import Usage
from api.relay import ResponseStream
from shared.protocol.events import Delta, Started


class UsageRecorder:
    """Counts over all choices of an answer. Times are of :func:`time.monotonic`."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.first_token: float | None = None
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self.outcome = "aborted"
        """How it ended: a finish reason, the kind of a problem, or ``aborted`` when the client went away."""
        self.left_to_another = False
        """Whether another replica finishes the answer, and counts what it took."""
        self.answer: ResponseStream | None = None
        """What is counted, once its jobs are on their way to the queue."""
        self.prompts: tuple[int, ...] = ()
        """Indexes of the prompts that are counted."""

    def started(self, prompt: int, event: Started) -> None:
        """Note the tokens of the prompt with the index ``prompt``; its choices have it in common."""
        if prompt not in self.prompts:
            self.prompts += (prompt,)
            self.prompt_tokens += event.prompt_tokens
            self.cached_tokens += event.cached_tokens

    def delta(self, event: Delta) -> None:
        """Count new tokens. Runs once a token."""
        if self.first_token is None:
            self.first_token = time.monotonic()
        self.completion_tokens += len(event.tokens)

    def generated(self, tokens: int) -> None:
        """Count the ``tokens`` of an answer that comes as a whole."""
        self.first_token = self.first_token or time.monotonic()
        self.completion_tokens += tokens

    def usage(self) -> Usage:
        """The counts so far."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
            reasoning_tokens=self.reasoning_tokens,
        )
