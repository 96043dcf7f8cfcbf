"""The deadlines of open requests: their maximum wait in the queue, and their maximum duration."""

import asyncio

from redis.exceptions import RedisError

from api.chat.queues import JobQueues
from api.chat.stream import ResponseStream
from api.models.lookup import RETRY_NO_WORKER
from shared.protocol.errors import Problem, ProblemKind
from shared.runtime.tasks import BackgroundTasks

_RETRY = 1.0
"""Seconds between two attempts while the store is unreachable."""

_TIMED_OUT = Problem(kind=ProblemKind.TIMEOUT, message="The request exceeded the maximum duration of requests.")

_QUEUE_TIMEOUT = Problem(
    kind=ProblemKind.QUEUE_TIMEOUT,
    message="No worker became free within the queue timeout. Please try again later.",
    retry_after=RETRY_NO_WORKER,
)


class Deadlines:
    """Fails response streams whose queue wait or duration exceeds its limit."""

    def __init__(
        self, queues: JobQueues, tasks: BackgroundTasks, *, queue_timeout: float, request_timeout: float
    ) -> None:
        """The timeouts are the service's, in seconds."""
        self._queues = queues
        self._tasks = tasks
        self._queue_timeout = queue_timeout
        self._request_timeout = request_timeout
        self._timers: dict[ResponseStream, asyncio.TimerHandle] = {}

    def start(self, stream: ResponseStream, *, queue_timeout: float | None = None) -> None:
        """Start the timer of ``stream``, which is accepted now.

        ``queue_timeout`` is the maximum wait in seconds; by default it is the service's.
        """
        loop = asyncio.get_running_loop()
        wait, duration = queue_timeout or self._queue_timeout, self._request_timeout
        # One timer per stream at a time, because there are thousands of streams.
        if wait < duration:
            self._timers[stream] = loop.call_later(wait, self._end_wait, stream, duration - wait)
        else:
            self._timers[stream] = loop.call_later(duration, stream.fail, _TIMED_OUT)

    def stop(self, stream: ResponseStream) -> None:
        """Cancel the timer of ``stream``."""
        timer = self._timers.pop(stream, None)
        if timer is not None:
            timer.cancel()

    def _end_wait(self, stream: ResponseStream, rest: float) -> None:
        """Fail ``stream`` if no job was claimed, otherwise when it is not finished in ``rest`` seconds."""
        self._timers[stream] = asyncio.get_running_loop().call_later(rest, stream.fail, _TIMED_OUT)
        if all(choice_stream.attempt == 0 for choice_stream in stream.choices):
            self._tasks.run(self._end_wait_unless_claimed(stream), "end of a wait")

    async def _end_wait_unless_claimed(self, stream: ResponseStream) -> None:
        """Fail ``stream`` if no job was claimed. Retries while the store is unreachable."""
        while stream in self._timers:
            try:
                if not await self._queues.of(stream.model).any_claimed(stream.jobs):
                    stream.fail(_QUEUE_TIMEOUT)
                return
            except (RedisError, OSError):
                await asyncio.sleep(_RETRY)
