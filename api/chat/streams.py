"""The table of open response streams: the only place that opens, fails and closes them.

A stream ends when its jobs have ended. Before that, it fails when its wait or duration exceeds a limit, when its model
has lost its last worker, when its key ends, and when the replica shuts down. Whoever has opened a stream closes it,
which cancels the jobs that are unfinished.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence, Sized

from api.chat.queues import JobQueues
from api.chat.relay import Relay
from api.chat.stream import ResponseStream
from api.models.directory import RETRY_NO_WORKER, Directory
from shared.protocol.errors import Problem, ProblemKind
from shared.redis.outage import when_reachable
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

_POLL = 0.05
"""Interval in seconds at which the end of all requests is awaited."""

_TIMED_OUT = Problem(kind=ProblemKind.TIMEOUT, message="The request exceeded the maximum duration of requests.")

_KEY_ENDED = Problem(
    kind=ProblemKind.UNAUTHORIZED,
    message="The API key of this request has expired or was revoked, so the request was ended.",
)

_SHUT_DOWN = Problem(
    kind=ProblemKind.SHUTTING_DOWN, message="This server was shut down before the response was complete."
)


class OpenStreams:
    def __init__(
        self, relay: Relay, queues: JobQueues, directory: Directory, tasks: BackgroundTasks, settings: ApiSettings
    ) -> None:
        """``tasks`` are those that cancel jobs."""
        self._relay = relay
        self._queues = queues
        self._directory = directory
        self._tasks = tasks
        self._settings = settings
        # One timer per stream at a time, because there are thousands of streams.
        self._timers: dict[ResponseStream, asyncio.TimerHandle] = {}
        self.draining = False
        """Whether the replica ends: it is not ready, and begins nothing on its own. It still serves what it gets."""
        self.drained = False
        """Whether new requests are refused."""

    def __len__(self) -> int:
        return len(self._timers)

    def __iter__(self) -> Iterator[ResponseStream]:
        return iter(tuple(self._timers))

    def open(
        self,
        jobs: Sequence[str],
        model: str,
        *,
        queue_timeout: float | None = None,
        stored: bool = False,
        tenant: str = "",
    ) -> ResponseStream:
        """Return the response stream of ``jobs``, which are about to be queued. The caller must :meth:`close` it.

        ``queue_timeout`` is the maximum wait in seconds; by default it is the setting's. ``stored`` is whether the
        response has a record, ``tenant`` the id of the API key.
        """
        stream = ResponseStream(jobs, model, cancel=self.cancel, queued=False, stored=stored, tenant=tenant)
        self._relay.open(stream)
        loop = asyncio.get_running_loop()
        wait, duration = queue_timeout or self._settings.queue_timeout, self._settings.request_timeout
        if wait < duration:
            self._timers[stream] = loop.call_later(wait, self._end_wait, stream, duration - wait)
        else:
            self._timers[stream] = loop.call_later(duration, stream.fail, _TIMED_OUT)
        return stream

    def close(self, stream: ResponseStream) -> asyncio.Task[frozenset[str]] | None:
        """Stop relaying to ``stream`` and cancel its unfinished jobs, unless they go on without this replica.

        Returns the task that cancels them, if any are cancelled.
        """
        self._relay.close(stream)
        timer = self._timers.pop(stream, None)
        if timer is not None:
            timer.cancel()
        return self.cancel(stream.model, stream.jobs) if stream.has_unfinished_jobs else None

    def cancel(self, model: str, jobs: Sequence[str]) -> asyncio.Task[frozenset[str]]:
        """Cancel the unfinished ``jobs`` in the background; return the task.

        Retries while the store is unreachable: otherwise workers would continue to compute.
        """
        queue = self._queues.of(model)
        return self._tasks.run(when_reachable(lambda: queue.cancel(jobs)), "cancel jobs")

    def fail_without_key(self, is_valid: Callable[[str], bool]) -> None:
        """Fail the streams whose API key was revoked or has expired, those of batches and in the background too.

        ``is_valid`` returns whether a tenant's key is valid. Call it after each refresh of the keys.
        """
        ended = {tenant for tenant in {stream.tenant for stream in self} if not is_valid(tenant)}
        for stream in self:
            if stream.tenant in ended:
                stream.fail(_KEY_ENDED)

    async def watch_workers(self) -> None:
        """Fail the streams whose model has had no worker for longer than ``worker_grace``, until cancelled.

        While the store is unreachable, absent workers mean nothing.
        """
        while True:
            await asyncio.sleep(next_tick(self._settings.lease / 3))
            if self._directory.reachable:
                self._fail_without_worker()

    async def drain(self, grace: float, connections: Sized = ()) -> None:
        """Wait up to ``grace`` seconds until no stream is open and ``connections`` is empty, then fail the remaining
        streams.

        The jobs of stored responses go on. Their clients get the error as well.
        """
        self.draining = True
        try:
            async with asyncio.timeout(grace):
                while self._timers or connections:  # noqa: ASYNC110 - of two owners, once in a process
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            logger.warning("drain timed out; %d requests are aborted", len(self))
        self.drained = True
        for stream in self:
            stream.leave(_SHUT_DOWN)

    def _end_wait(self, stream: ResponseStream, rest: float) -> None:
        """Fail ``stream`` if no job was claimed, otherwise when it is not finished in ``rest`` seconds."""
        self._timers[stream] = asyncio.get_running_loop().call_later(rest, stream.fail, _TIMED_OUT)
        if all(choice_stream.attempt == 0 for choice_stream in stream.choices):
            self._tasks.run(self._end_wait_unless_claimed(stream), "end of a wait")

    async def _end_wait_unless_claimed(self, stream: ResponseStream) -> None:
        """Fail ``stream`` if no job was claimed. Retries while the store is unreachable and ``stream`` is open."""

        async def is_claimed() -> bool:
            return stream not in self._timers or await self._queues.of(stream.model).any_claimed(stream.jobs)

        if not await when_reachable(is_claimed):
            _fail_for_now(stream, ProblemKind.QUEUE_TIMEOUT, self._directory.why_waited(stream.model))

    def _fail_without_worker(self) -> None:
        models = {stream.model for stream in self}
        grace = self._settings.worker_grace
        orphaned = {model for model in models if self._directory.without_worker_for(model) > grace}
        for stream in self:
            if stream.model in orphaned:
                _fail_for_now(stream, ProblemKind.NO_WORKER, self._directory.why_without_worker(stream.model))


def _fail_for_now(stream: ResponseStream, kind: ProblemKind, message: str) -> None:
    """Fail ``stream`` with a problem that may be over soon."""
    stream.fail(Problem(kind=kind, message=message, retry_after=RETRY_NO_WORKER))
