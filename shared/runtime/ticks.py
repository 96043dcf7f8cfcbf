"""When work is done again: the schedule of what is periodic, and the pauses before what has failed."""

import asyncio
import random
import time
from contextlib import suppress

_PHASE = random.uniform(0.0, 60.0)  # noqa: S311 - not a secret
"""Random phase in seconds of this process's ticks, which spreads the processes' commands over time."""

_TOO_SOON = 0.125
"""Share of a period below which the next tick is skipped, because timers may fire slightly early."""


def next_tick(period: float) -> float:
    """Return the seconds until the next tick of ``period`` seconds.

    Ticks of the same period, or of multiples of it, coincide within a process. Waking up is most of the cost of small
    tasks on a host whose caches an engine has filled, so they share one wake-up.
    """
    rest = period - (time.monotonic() + _PHASE) % period
    return rest if rest > _TOO_SOON * period else rest + period


async def until(event: asyncio.Event, seconds: float) -> None:
    """Wait until ``event`` is set, for at most ``seconds``."""
    # Not wait_for(): before Python 3.12 it creates a task, which delays every claim.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


HEALTHY_AFTER = 60.0
"""Seconds after which an attempt that ends counts as the first failure again."""


class Backoff:
    """Pauses in seconds, each twice as long as the one before."""

    def __init__(self, initial: float, maximum: float) -> None:
        self._initial, self._maximum = initial, maximum
        self._next = initial

    def pause(self, ran: float = 0.0) -> float:
        """Return the next pause, after an attempt that has run for ``ran`` seconds."""
        if ran > HEALTHY_AFTER:
            self._next = self._initial
        pause, self._next = self._next, min(2 * self._next, self._maximum)
        return pause
