"""The open response streams: opening and closing them, with their relaying, deadlines and cancellation."""

from collections.abc import Sequence

from api.chat.cancellation import JobCancellation
from api.chat.deadlines import Deadlines
from api.chat.relay import Relay
from api.chat.stream import ResponseStream


class OpenStreams:
    """Opens and closes the response streams of this replica."""

    def __init__(self, relay: Relay, deadlines: Deadlines, cancellation: JobCancellation) -> None:
        self._relay = relay
        self._deadlines = deadlines
        self._cancellation = cancellation

    def open(
        self,
        jobs: Sequence[str],
        model: str,
        *,
        queue_timeout: float | None = None,
        stored: bool = False,
        tenant: str = "",
    ) -> ResponseStream:
        """Return the response stream of ``jobs``, which are about to be queued.

        The caller must :meth:`close` it, or :meth:`discard` it if the jobs were not queued. ``queue_timeout`` is the
        maximum wait in seconds; by default it is the setting's. ``stored`` is whether the response has a record,
        ``tenant`` the id of the API key.
        """
        stream = ResponseStream(
            list(jobs), model, cancel=lambda job: self._cancellation.cancel(model, [job]), stored=stored, tenant=tenant
        )
        stream.arriving = True
        self._relay.open(stream)
        self._deadlines.start(stream, queue_timeout=queue_timeout)
        return stream

    def close(self, stream: ResponseStream) -> None:
        """Stop relaying to ``stream`` and cancel its unfinished jobs, unless they go on without this replica."""
        self.discard(stream)
        if (stream.abandoned or not stream.finished) and not stream.left:
            stream.cancellation = self._cancellation.cancel(stream.model, stream.jobs)

    def discard(self, stream: ResponseStream) -> None:
        """Stop relaying to ``stream``, whose jobs were not queued."""
        self._relay.close(stream)
        self._deadlines.stop(stream)
