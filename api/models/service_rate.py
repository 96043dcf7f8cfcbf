"""The service rate: how fast a model's workers empty its queue, derived from their registry records."""

from collections.abc import Iterable

from shared.protocol.registry import WorkerInfo

_HALF_LIFE = 30.0
"""Half-life of observations in seconds."""

_ENOUGH = 3.0
"""Seconds with a full worker that must be observed before a rate is reported."""


class ServiceRate:
    """The service rate of one model: tokens per second of full workers, divided by tokens per request.

    Counting finished requests would be noisy: with long texts none ends for a minute, and then sixteen at once.
    """

    def __init__(self) -> None:
        self._workers = 0
        self._tokens = 0.0
        self._requests = 0.0
        self._full_tokens = 0.0
        self._full_seconds = 0.0
        self._seen: dict[str, WorkerInfo] = {}
        self._looked: float | None = None

    def observe(self, workers: Iterable[WorkerInfo], now: float) -> None:
        """Record the model's live workers at ``now`` (monotonic seconds)."""
        elapsed = now - self._looked if self._looked is not None else 0.0
        self._looked = now
        self._fade(0.5 ** (elapsed / _HALF_LIFE))
        serving = {worker.id: worker for worker in workers if worker.status == "serving"}
        for name, worker in serving.items():
            before = self._seen.get(name)
            # The token count restarts with each engine.
            if before is None or worker.tokens < before.tokens:
                continue
            tokens = worker.tokens - before.tokens
            self._tokens += tokens
            self._requests += max(0, worker.requests - before.requests)
            if min(worker.used - worker.slots, before.used - before.slots) >= 0:
                self._full_tokens += tokens
                self._full_seconds += elapsed
        self._seen = serving
        self._workers = len(serving)

    @property
    def requests_per_second(self) -> float | None:
        """Jobs per second that leave the queue while it is not empty.

        ``None`` until enough was observed, and while no worker serves, because a replaced engine is soon back.
        """
        if self._workers == 0 or self._full_seconds < _ENOUGH or self._requests < 1 or self._tokens < 1:
            return None
        tokens_per_second = self._workers * self._full_tokens / self._full_seconds
        return tokens_per_second * self._requests / self._tokens

    def _fade(self, factor: float) -> None:
        self._tokens *= factor
        self._requests *= factor
        self._full_tokens *= factor
        self._full_seconds *= factor
