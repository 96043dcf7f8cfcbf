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
    They then run at least as long as they were preempted; a request that comes meanwhile preempts them after that.
    """

    def __init__(
        self, jobs: ActiveJobs, *, until_end: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``until_end``: resume lines when the other requests end, not when they have their first tokens."""
        self._jobs = jobs
        self._until_end = until_end
        self._clock = clock
        self._waiting: set[int] = set()
        """Sequence numbers of the jobs for which lines are preempted."""
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
        if self._over.is_set():
            self._begin()

    def on_first_token(self, active: ActiveJob) -> None:
        """Resume the lines if no job is left that waits for its first token."""
        if not self._until_end:
            self.leave(active)

    def leave(self, active: ActiveJob) -> None:
        """Resume the lines if no job is left for which they are preempted. May be called more than once."""
        if active.number in self._waiting:
            self._waiting.remove(active.number)
            if not self._waiting:
                self._end()

    def _begin(self) -> None:
        """Preempt the lines, now or as soon as they have run for long enough."""
        now = self._clock()
        if now < self._next:
            self._schedule(self._next - now, self._begin)
            return
        lines = [one for one in self._jobs.by_number.values() if one.preemptible]
        if lines and lines[0].engine is not None:
            self._engine = lines[0].engine
            self._engine.preempt([line.number for line in lines])
        self._began = now
        self._over.clear()
        self._schedule(LONGEST, self._end)

    def _end(self) -> None:
        """Resume the lines, or do not preempt them after all."""
        if self._timer is not None:
            self._timer.cancel()
        if self._over.is_set():
            return
        self._next = now = self._clock()
        if self._engine is not None:
            self._engine.preempt(())
            self._engine = None
            self._next += max(SHORTEST_RUN, now - self._began)
        self._over.set()
        if self._waiting:
            self._begin()

    def _schedule(self, delay: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay, call)
