"""From an answer's events to bytes in a dialect's form: as a stream, or as one body."""

import time
from collections.abc import AsyncIterator

from api.dialects.interface import Choice, Rendering, Usage
from api.relay import Answer
from shared.errors import RequestRefused
from shared.events import Delta, Failed, Finished, FinishReason, Rejected, Started


class Tally:
    """What is counted over all choices of an answer. Times are of :func:`time.monotonic`."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.first_token: float | None = None
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.outcome = "aborted"
        """How it ended: a finish reason, the kind of a problem, or ``aborted`` when the client went away."""

    def started(self, event: Started) -> None:
        """Note the prompt's tokens, which every choice has in common."""
        self.prompt_tokens = event.prompt_tokens
        self.cached_tokens = max(self.cached_tokens, event.cached_tokens)

    def delta(self, event: Delta) -> None:
        """Count new tokens."""
        if self.first_token is None:
            self.first_token = time.monotonic()
        self.completion_tokens += len(event.tokens)

    def usage(self) -> Usage:
        """The counts so far."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
        )


async def stream(answer: Answer, rendering: Rendering, tally: Tally) -> AsyncIterator[bytes]:
    """Yield the stream's bytes, one piece for all that has arrived since the last.

    A failure after the beginning is told in the stream.
    """
    async for batch in answer.batches():
        pieces: list[bytes] = []
        for choice, event in batch:
            match event:
                case Delta():
                    tally.delta(event)
                    if event.text:
                        pieces.append(rendering.delta(choice, event.text))
                case Started():
                    tally.started(event)
                    pieces.append(rendering.opening(choice))
                case Finished():
                    tally.outcome = event.reason
                    pieces.append(rendering.closing(choice, event.reason))
                case Failed() | Rejected():
                    tally.outcome = event.problem.kind
                    pieces.append(rendering.failure(event.problem))
                    yield b"".join(pieces)
                    return
        if answer.over:
            pieces += (rendering.usage(tally.usage()), rendering.done)
        if pieces:
            yield b"".join(pieces)


async def collect(answer: Answer, tally: Tally) -> list[Choice]:
    """Wait for the whole answer. Raises :class:`RequestRefused` when any choice fails."""
    texts: list[list[str]] = [[] for _ in answer.jobs]
    reasons: list[FinishReason] = ["stop" for _ in answer.jobs]
    async for batch in answer.batches():
        for choice, event in batch:
            match event:
                case Delta():
                    tally.delta(event)
                    texts[choice].append(event.text)
                case Started():
                    tally.started(event)
                case Finished():
                    tally.outcome = reasons[choice] = event.reason
                case Failed() | Rejected():
                    tally.outcome = event.problem.kind
                    raise RequestRefused(event.problem)
    return [
        Choice(index=choice, text="".join(text), reason=reason)
        for choice, (text, reason) in enumerate(zip(texts, reasons, strict=True))
    ]
