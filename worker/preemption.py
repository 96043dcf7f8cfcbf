"""Preemption: takes lines of batches out of the engine while other requests wait for their first token.

A step can't be interrupted, but the next one is without the lines, so it computes nothing but the prompts of the
others. The lines keep their slots and leases. They are resumed from their prompts and the tokens generated so far, most
of which are in the prefix cache.
"""

import asyncio
import time
from collections.abc import Callable

from worker.active_jobs import ActiveJob, ActiveJobs
from worker.engine.process import EngineProcess

LONGEST = 10.0
"""Maximum duration of a preemption in seconds."""

SHORTEST_RUN = 0.5
"""Minimum time between two preemptions in seconds. Most of what lines compute again takes less."""


class Preemption:
    """Preempts the lines of batches, at most half of the time.

    Lines are preempted when another request enters the engine, and resumed when each of those has its first token.
    They then run at least as long as they were preempted.
    """

    def __init__(self, jobs: ActiveJobs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs = jobs
        self._clock = clock
        self._waiting: set[int] = set()
        """Sequence numbers of jobs that are no lines and have no token yet."""
        self._engine: EngineProcess | None = None
        """The engine process with preempted lines."""
        self._began = 0.0
        self._next = 0.0
        """When lines may be preempted again, by the clock."""
        self._over = asyncio.Event()
        self._over.set()
        self._timer: asyncio.TimerHandle | None = None

    async def over(self) -> None:
        """Wait until no lines are preempted."""
        await self._over.wait()

    def arrive(self, active: ActiveJob) -> None:
        """Preempt the lines in the engine that is about to get a job. :meth:`leave` must follow."""
        self._waiting.add(active.number)
        if self._over.is_set() and self._clock() >= self._next:
            self._begin(active)

    def leave(self, active: ActiveJob) -> None:
        """Resume the lines if no job is left that waits for its first token. May be called more than once."""
        if active.number in self._waiting:
            self._waiting.remove(active.number)
            if not self._waiting and not self._over.is_set():
                self._end()

    def _begin(self, first: ActiveJob) -> None:
        lines = [one.number for one in self._jobs.by_number.values() if one.preemptible and one.engine is first.engine]
        if lines and first.engine is not None:
            self._engine = first.engine
            self._engine.preempt(lines)
        self._began = self._clock()
        self._over.clear()
        self._timer = asyncio.get_running_loop().call_later(LONGEST, self._end)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = self._clock()
        self._next = now
        if self._engine is not None:
            self._engine.preempt(())
            self._engine = None
            self._next += max(SHORTEST_RUN, now - self._began)
        self._over.set()
