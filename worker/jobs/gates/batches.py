"""The batch gate: takes batch requests out of the engine while other requests wait for their first token.

A step can't be interrupted, but the next one leaves out the batch requests, and computes only the prompts of the other
requests. The batch requests keep their slots and leases. They are resumed from their prompts and generated tokens, most
of which are in the prefix cache.
"""

import asyncio
import time
from collections.abc import Callable

from worker.engine.handle import EngineProcess
from worker.jobs.attempt import Attempt, Hold
from worker.jobs.gates import NOTHING

MAX_DURATION = 10.0
"""Maximum duration of a preemption in seconds."""

MIN_RUN = 0.5
"""Minimum time between two preemptions in seconds. Recomputation of batch requests mostly takes less."""

MIN_RETURN = 10.0
"""Minimum time in seconds that a request that has left its slot runs before it leaves another one."""


class BatchGate:
    """Preempts batch requests, at most half of the time.

    They are preempted when another request enters the engine, and resumed when each of those has its first token.
    They then run at least as long as they were preempted; a request that arrives meanwhile preempts them after that.
    It must be the last gate: an attempt that has passed it is in the engine.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[Attempt, None] = {}
        """The attempts in the engine that may be preempted."""
        self._waiting: set[_Preempting] = set()
        """Those for which batch requests are preempted."""
        self._engine: EngineProcess | None = None
        """The engine process with preempted batch requests."""
        self._preempted_at = 0.0
        self._next_at = 0.0
        """When batch requests may be preempted again, by the clock."""
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, attempt: Attempt) -> Hold:
        """Wait until no batch requests are preempted, if ``attempt`` is at one; otherwise preempt them."""
        if not attempt.is_batch:
            preempting = _Preempting(self)
            self._waiting.add(preempting)
            if self._resumed.is_set():
                self._preempt()
            return preempting
        await self._resumed.wait()
        if not _is_preemptible(attempt):
            return NOTHING
        self._running[attempt] = None
        return _Preemptible(self, attempt)

    def end(self, preempting: "_Preempting") -> None:
        """Resume the batch requests if they are preempted for no other request."""
        if preempting in self._waiting:
            self._waiting.remove(preempting)
            if not self._waiting:
                self._resume()

    def remove(self, attempt: Attempt) -> None:
        """Forget a batch request that leaves the engine."""
        del self._running[attempt]

    def _preempt(self) -> None:
        """Preempt the batch requests, now or once they have run for long enough."""
        now = self._clock()
        if now < self._next_at:
            self._schedule(self._next_at - now, self._preempt)
            return
        attempts = [attempt for attempt in self._running if attempt.stopped is None]
        if attempts and attempts[0].engine is not None:
            self._engine = attempts[0].engine
            self._engine.preempt([attempt.number for attempt in attempts])
        self._preempted_at = now
        self._resumed.clear()
        self._schedule(MAX_DURATION, self._resume)

    def _resume(self) -> None:
        """Resume the batch requests, or cancel a scheduled preemption."""
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


class _Preempting(Hold):
    def __init__(self, gate: BatchGate) -> None:
        self._gate = gate

    def progress(self, tokens: int) -> bool:
        self.leave()
        return False

    def leave(self) -> None:
        self._gate.end(self)


class _Preemptible(Hold):
    def __init__(self, gate: BatchGate, attempt: Attempt) -> None:
        self._gate = gate
        self._attempt = attempt

    def leave(self) -> None:
        self._gate.remove(self._attempt)


def may_leave(attempt: Attempt, *, now: float, adjusts_logits: bool) -> bool:
    """Return whether a request may leave its slot to another one, and another attempt continue it.

    Another attempt computes the prompt again, so it has run for :data:`MIN_RUN` seconds since its first new token, or
    :data:`MIN_RETURN` if it has left a slot before. ``now`` is in monotonic seconds. Its tokens must be enough to
    continue it exactly, which they are with penalties if the engine ``adjusts_logits``.
    """
    sequence, sampling = attempt.sequence, attempt.sequence.sampling
    penalty = sampling.frequency_penalty or sampling.presence_penalty
    repeated = sequence.grammar or sequence.images or (penalty and not adjusts_logits)
    least = MIN_RETURN if attempt.claim.cause == "preempted" else MIN_RUN
    return (
        attempt.stopped is None
        and 0 < attempt.first_output_at < now - least
        and not repeated
        and sampling.beams == 1
        and sampling.prompt_scoring is None
        and _is_preemptible(attempt)
    )


def _is_preemptible(attempt: Attempt) -> bool:
    """Return whether other requests may preempt an attempt.

    A suspect may not be preempted, because other suspects wait for it, nor one whose client expects a seed to
    reproduce its text.
    """
    seeded = attempt.request is not None and attempt.request.sampling.seed is not None
    return not (attempt.is_suspect or (seeded and attempt.sequence.sampling.temperature != 0))
