"""Usage and timing of requests, and the metrics that are made of them."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import get_args

from prometheus_client import CollectorRegistry

from api.chat.choices import LOGPROB_BYTES, TEXT_BYTES
from api.chat.stream import ResponseStream
from api.dialects.base.interface import Usage
from api.fairness import Holding
from api.metrics import catalogue
from api.metrics.histogram import RecentTimes
from shared.protocol.errors import ProblemKind
from shared.protocol.events import Alternatives, Delta, Finished, MoveCause, Started


class UsageRecorder:
    """Counts tokens over all choices of a request. Times are :func:`time.monotonic` seconds."""

    def __init__(self, started_at: float | None = None, *, trace_id: str = "", share: Holding | None = None) -> None:
        """``started_at`` is the start of the request, by default now. ``trace_id`` is its trace, if recorded. ``share``
        counts the log probabilities that are kept; None if nothing bounds them."""
        self.trace_id = trace_id
        self._share = share
        self.started_at = time.monotonic() if started_at is None else started_at
        self.first_token: float | None = None
        self.queued: float | None = None
        """When the jobs were queued."""
        self.queue_wait: float | None = None
        """Time in seconds from then until a worker claimed the first job that started."""
        self.prompt_seconds: float | None = None
        """Time that the worker took to prepare the prompt of that job."""
        self.prefill_seconds: float | None = None
        """Time from then until its first token."""
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self.outcome = "aborted"
        """How the request ended: a finish reason, a problem kind, or ``aborted`` when the client disconnected."""
        self.prompts: tuple[int, ...] = ()
        """Indexes of the prompts whose tokens are counted."""
        self.text_tokens: dict[int, int] = {}
        """Number of tokens of each prompt that is counted without its images."""

    def started(self, prompt: int, event: Started) -> None:
        """Count the tokens of the prompt with index ``prompt``, once for all of its choices."""
        if self.queue_wait is None and self.queued is not None and event.attempt:
            # The clocks of two machines can't be compared: the wait is the rest after the worker's times.
            self.prompt_seconds, self.prefill_seconds = event.prompt_seconds, event.prefill_seconds
            waited = time.monotonic() - self.queued - event.prompt_seconds - event.prefill_seconds
            self.queue_wait = max(0.0, waited)
        if prompt not in self.prompts:
            self.prompts += (prompt,)
            self.text_tokens[prompt] = event.prompt_tokens
            self.prompt_tokens += event.prompt_tokens
            self.cached_tokens += event.cached_tokens

    def finished(self, prompt: int, event: Finished | Alternatives) -> None:
        """Count the tokens of the images in the prompt with index ``prompt``, once for all of its choices."""
        if event.prompt_tokens:
            self.prompt_tokens += event.prompt_tokens - self.text_tokens.pop(prompt, event.prompt_tokens)

    def delta(self, event: Delta) -> None:
        """Count new tokens. Runs once per token."""
        if self.first_token is None:
            self.first_token = time.monotonic()
        self.completion_tokens += len(event.tokens)

    def generated(self, tokens: int) -> None:
        """Count ``tokens`` that arrive in one event, as from a beam search."""
        self.first_token = self.first_token or time.monotonic()
        self.completion_tokens += tokens

    def keep(self, logprobs: int) -> None:
        """Count ``logprobs`` log probabilities that are kept until the end of the response.

        Raises :class:`RequestRefused` if there is no room for them.
        """
        if self._share is not None:
            self._share.add(LOGPROB_BYTES * logprobs)

    def release(self) -> None:
        """Give back the room of what was kept."""
        if self._share is not None:
            self._share.release()

    @property
    def response_bytes(self) -> int:
        """Estimated size of the response so far."""
        return TEXT_BYTES * self.completion_tokens + (self._share.bytes if self._share is not None else 0)

    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
            reasoning_tokens=self.reasoning_tokens,
        )


_CAUSES = frozenset(get_args(MoveCause))

FAILURES = (
    ProblemKind.LOST,
    ProblemKind.POISON,
    ProblemKind.ENGINE_FAILED,
    ProblemKind.INTERNAL,
    ProblemKind.CACHE_EXHAUSTED,
    ProblemKind.NO_WORKER,
    ProblemKind.QUEUE_TIMEOUT,
    ProblemKind.TIMEOUT,
)
"""Outcomes of accepted requests that are failures of the service. The alert VinoqueueRequestsFail counts them."""


class RequestMetrics:
    def __init__(self, registry: CollectorRegistry, first_token_times: RecentTimes, *, by_key: bool = False) -> None:
        """``by_key`` adds counters for each API key."""
        self._first_token_times = first_token_times
        self._requests = catalogue.REQUESTS.counter(registry)
        self._refused = catalogue.REFUSED.counter(registry)
        self._first_token = catalogue.FIRST_TOKEN.histogram(registry)
        self._queue_wait = catalogue.QUEUE_WAIT.histogram(registry)
        self._prompt = catalogue.PROMPT.histogram(registry)
        self._prefill = catalogue.PREFILL.histogram(registry)
        self._duration = catalogue.DURATION.histogram(registry)
        self._prompt_tokens = catalogue.PROMPT_TOKENS.counter(registry)
        self._cached_tokens = catalogue.CACHED_TOKENS.counter(registry)
        self._completion_tokens = catalogue.COMPLETION_TOKENS.counter(registry)
        self._migrations = catalogue.MIGRATIONS.counter(registry)
        of_key = (catalogue.KEY_REQUESTS, catalogue.KEY_PROMPT_TOKENS, catalogue.KEY_COMPLETION_TOKENS)
        self._of_key = [description.counter(registry) for description in of_key] if by_key else []
        self._models: set[str] = set()
        self.failures: Counter[str] = Counter()
        """Requests with one of :data:`FAILURES`, by model."""
        # Counters begin at 0, because Prometheus sees no increase in a series that begins at 1.
        for kind in ProblemKind:
            self._refused.labels(kind)

    def begin(self, models: Iterable[str]) -> None:
        """Begin the counters that alerts watch at 0, for models that are new."""
        for model in models:
            if model in self._models:
                continue
            self._models.add(model)
            for cause in _CAUSES:
                self._migrations.labels(model, cause)
            for kind in FAILURES:
                self._requests.labels(model, kind)

    def record(self, stream: ResponseStream, usage: UsageRecorder, *, timed: bool = True) -> None:
        """Count a request that has ended, and if it is ``timed``, its times."""
        model = stream.model
        self._requests.labels(model, usage.outcome).inc()
        if usage.outcome in FAILURES:
            self.failures[model] += 1
        self._prompt_tokens.labels(model).inc(usage.prompt_tokens)
        self._cached_tokens.labels(model).inc(usage.cached_tokens)
        self._completion_tokens.labels(model).inc(usage.completion_tokens)
        counts = (1, usage.prompt_tokens, usage.completion_tokens)
        for counter, count in zip(self._of_key, counts, strict=False):
            counter.labels(model, stream.tenant).inc(count)
        for cause in stream.move_causes:
            self._migrations.labels(model, cause if cause in _CAUSES else "unknown").inc()
        if not timed:
            return
        # By this name, logs and the fleet view know the request.
        exemplar = {"job": stream.jobs[0].partition(":")[0][:64]}
        if usage.trace_id:
            exemplar["trace_id"] = usage.trace_id
        self._duration.labels(model).observe(time.monotonic() - usage.started_at, exemplar)
        if usage.first_token is not None:
            self._first_token.labels(model).observe(usage.first_token - usage.started_at, exemplar)
            self._first_token_times.observe(model, usage.first_token - usage.started_at)
        for metric, seconds in (
            (self._queue_wait, usage.queue_wait),
            (self._prompt, usage.prompt_seconds),
            (self._prefill, usage.prefill_seconds),
        ):
            if seconds is not None:
                metric.labels(model).observe(seconds, exemplar)

    def refused(self, kind: ProblemKind) -> None:
        self._refused.labels(kind).inc()
