"""A histogram of times that costs little to update, for what happens once per token."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
"""Upper bounds in seconds of the buckets of all latency histograms: 1 ms to 10 min."""


class LatencyHistogram:
    """Numbers of observations per bucket of :data:`BUCKETS`, and their sum in seconds, by label."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, label: str, seconds: float, times: int = 1) -> None:
        """Count ``times`` equal observations."""
        counts = self._counts.get(label)
        if counts is None:
            counts = self._counts[label] = [0] * (len(BUCKETS) + 1)
            self._sums[label] = 0.0
        counts[bisect_left(BUCKETS, seconds)] += times
        self._sums[label] += seconds * times

    def read(self) -> Iterator[tuple[str, list[tuple[str, float]], float]]:
        """Yield each label with its cumulative buckets, as Prometheus has them, and its sum."""
        bounds = [*(str(float(bound)) for bound in BUCKETS), "+Inf"]
        for label, counts in self._counts.items():
            yield label, [*zip(bounds, map(float, accumulate(counts)), strict=True)], self._sums[label]
