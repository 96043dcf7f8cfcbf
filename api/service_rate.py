"""How fast each model's workers empty its queue, from what the workers advertise."""

from collections.abc import Iterable

from shared.protocol.registry import WorkerInfo

_HALF_LIFE = 30.0
"""Seconds in which what was seen loses half of its weight."""

_ENOUGH = 3.0
"""Seconds of a full worker that must have been seen before anything is said of its rate."""


class ServiceRate:
    """The rate of one model: the tokens that a full worker makes in a second, over the tokens that a request takes.

    Counting the requests that end would be noisy: with long answers none ends for a minute, then sixteen do at once.
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
        """Note what the model's live workers advertise at ``now`` (monotonic seconds)."""
        elapsed = now - self._looked if self._looked is not None else 0.0
        self._looked = now
        self._fade(0.5 ** (elapsed / _HALF_LIFE))
        serving = {worker.id: worker for worker in workers if worker.status == "serving"}
        for name, worker in serving.items():
            before = self._seen.get(name)
            # The count of tokens begins anew with each engine.
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
        """Jobs that leave the queue in a second while it is not empty.

        ``None`` until enough has been seen, and while no worker serves: an engine that is replaced is soon back.
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
