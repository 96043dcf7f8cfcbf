"""When a process does what it does again and again."""

import random
import time

_PHASE = random.uniform(0.0, 60.0)  # noqa: S311 - nobody gains by guessing it
"""Seconds by which this process's beats are shifted against those of others on the host: a store should not hear all
of them at once."""

_TOO_SOON = 0.125
"""The share of a period below which the next beat is left out: a timer may fire a little early."""


def next_tick(period: float) -> float:
    """Return the seconds to wait until the next beat of ``period`` seconds.

    Beats of one period, or of multiples of it, fall together in a process. Once awake, it does several things for
    little more than one: on a host whose caches an engine has filled, most of what small work costs is to begin.
    """
    rest = period - (time.monotonic() + _PHASE) % period
    return rest if rest > _TOO_SOON * period else rest + period
