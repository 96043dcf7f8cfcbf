"""Preemption: takes lines of batches out of the engine while other requests wait for their first token.

A step can't be interrupted, but the next one leaves out the lines, and computes only the prompts of the other
requests. The lines keep their slots and leases. They are resumed from their prompts and generated tokens, most of which
are in the prefix cache.
"""

import asyncio
import time
from collections.abc import Callable

from worker.engine.handle import EngineProcess
from worker.jobs.active_jobs import ActiveJob, ActiveJobs

MAX_DURATION = 10.0
"""Maximum duration of a preemption in seconds."""

MIN_RUN = 0.5
"""Minimum time between two preemptions in seconds. Recomputation of the lines mostly takes less."""


class Preemption:
    """Preempts the lines of batches, at most half of the time.

    Lines are preempted when another request enters the engine, and resumed when each of those has its first token.
    They then run at least as long as they were preempted; a request that arrives meanwhile preempts them after that.
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
        self._preempted_at = 0.0
        self._next_at = 0.0
        """When lines may be preempted again, by the clock."""
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._timer: asyncio.TimerHandle | None = None

    async def wait_until_resumed(self) -> None:
        """Wait until no lines are preempted."""
        await self._resumed.wait()

    def preempt_for(self, active: ActiveJob) -> None:
        """Preempt the lines for a job that is about to enter the engine. :meth:`release` must follow."""
        self._waiting.add(active.number)
        if self._resumed.is_set():
            self._preempt()

    def on_first_token(self, active: ActiveJob) -> None:
        """Resume the lines if no other job waits for its first token."""
        if not self._until_end:
            self.release(active)

    def release(self, active: ActiveJob) -> None:
        """Resume the lines if they are preempted for no other job. May be called more than once."""
        if active.number in self._waiting:
            self._waiting.remove(active.number)
            if not self._waiting:
                self._resume()

    def _preempt(self) -> None:
        """Preempt the lines, now or once they have run for long enough."""
        now = self._clock()
        if now < self._next_at:
            self._schedule(self._next_at - now, self._preempt)
            return
        lines = [active for active in self._jobs.by_number.values() if active.preemptible]
        if lines and lines[0].engine is not None:
            self._engine = lines[0].engine
            self._engine.preempt([line.number for line in lines])
        self._preempted_at = now
        self._resumed.clear()
        self._schedule(MAX_DURATION, self._resume)

    def _resume(self) -> None:
        """Resume the lines, or cancel a scheduled preemption."""
        if self._timer is not None:
            self._timer.cancel()
        if self._resumed.is_set():
            return
        self._next_at = now = self._clock()
        if self._engine is not None:
            self._engine.preempt(())
            self._engine = None
            self._next_at += max(MIN_RUN, now - self._preempted_at)
        self._resumed.set()
        if self._waiting:
            self._preempt()

    def _schedule(self, delay: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay, call)
