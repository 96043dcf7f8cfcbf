"""The open response streams: opening and closing them, with their relaying, deadlines and cancellation."""

from collections.abc import Sequence

from api.draining import Draining
from api.jobs.cancellation import JobCancellation
from api.jobs.deadlines import Deadlines
from api.relay import Relay
from api.response_stream import ResponseStream


class OpenStreams:
    """Opens and closes the response streams of this replica."""

    def __init__(self, relay: Relay, deadlines: Deadlines, cancellation: JobCancellation, draining: Draining) -> None:
        self._relay = relay
        self._deadlines = deadlines
        self._cancellation = cancellation
        self._draining = draining

    def open(self, jobs: Sequence[str], model: str, *, queue_timeout: float | None = None) -> ResponseStream:
        """Return the response stream of ``jobs``, which are about to be queued.

        The caller must :meth:`close` it, or :meth:`discard` it if the jobs were not queued. ``queue_timeout`` is the
        maximum wait in seconds; by default it is the setting's.
        """
        stream = self._new(jobs, model)
        stream.arriving = True
        self._relay.open(stream)
        self._deadlines.start(stream, queue_timeout=queue_timeout)
        return stream

    def follow(
        self, jobs: Sequence[str], model: str, *, age: float, queue_timeout: float | None = None
    ) -> ResponseStream:
        """Return the response stream of a request that another replica accepted ``age`` seconds ago.

        Used by completion recovery. Events are read from the journals of ``jobs``. The caller must :meth:`close` the
        stream.
        """
        stream = self._new(jobs, model)
        stream.recoverable = True
        self._relay.open(stream)
        self._deadlines.start(stream, queue_timeout=queue_timeout, age=age)
        self._relay.catch_up(stream)
        return stream

    def close(self, stream: ResponseStream) -> None:
        """Stop relaying to ``stream`` and cancel its unfinished jobs, unless another replica takes them over."""
        self.discard(stream)
        if (stream.abandoned or not stream.finished) and not self._draining.leaves(stream):
            stream.cancellation = self._cancellation.cancel(stream.model, stream.jobs)
        elif stream.recoverable and stream.ended:
            self._cancellation.cancel(stream.model, stream.ended)

    def discard(self, stream: ResponseStream) -> None:
        """Stop relaying to ``stream``, whose jobs were not queued."""
        self._relay.close(stream)
        self._deadlines.stop(stream)

    def _new(self, jobs: Sequence[str], model: str) -> ResponseStream:
        return ResponseStream(list(jobs), model, cancel=lambda job: self._cancellation.cancel(model, [job]))
