"""A wall clock that the test controls."""

import time

import pytest


class WallClock:
    """A clock that starts at a whole second and is advanced by hand.

    Replaces :func:`time.time`, which the simulated store also uses: for leases, limits and expiring keys.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = float(int(time.time()))
        monkeypatch.setattr(time, "time", lambda: self._now)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass; negative ones set the clock back."""
        self._now += seconds
