"""Histograms of times, which cost little to update and can be added up over replicas."""

import math
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
"""Upper bounds in seconds of the buckets of all latency histograms in the metrics: 1 ms to 10 min."""

FINE_BUCKETS = tuple(0.001 * 2 ** (step / 8) for step in range(1, 161))
"""Upper bounds in seconds of buckets that are 9 % wide, so a percentile is at most 5 % off: 1 ms to 17 min."""

WINDOW = 900
"""Seconds that :class:`RecentTimes` cover."""

_PERIOD = 60.0
"""Seconds by which the window advances."""

Counts = Mapping[int, int]
"""Numbers of observations by the index of their bucket."""


class LatencyHistogram:
    """Numbers of observations per bucket, and their sum in seconds, by label."""

    def __init__(self, bounds: Sequence[float] = BUCKETS) -> None:
        """``bounds`` are the upper bounds of all buckets but the last, in seconds."""
        self._bounds = bounds
        self.counts: dict[str, list[int]] = {}
        """Number of observations in each bucket, by label."""
        self._sums: dict[str, float] = {}

    def observe(self, label: str, seconds: float, times: int = 1) -> None:
        counts = self.counts.get(label)
        if counts is None:
            counts = self.counts[label] = [0] * (len(self._bounds) + 1)
            self._sums[label] = 0.0
        counts[bisect_left(self._bounds, seconds)] += times
        self._sums[label] += seconds * times

    def read(self) -> Iterator[tuple[str, list[tuple[str, float]], float]]:
        """Yield each label with its cumulative buckets, as Prometheus has them, and its sum."""
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for label, counts in self.counts.items():
            yield label, [*zip(bounds, map(float, accumulate(counts)), strict=True)], self._sums[label]


class RecentTimes:
    """A histogram of the last 15 minutes, with :data:`FINE_BUCKETS`."""

    def __init__(self) -> None:
        self._periods: deque[tuple[float, LatencyHistogram]] = deque()

    def observe(self, label: str, seconds: float) -> None:
        now = time.monotonic()
        if not self._periods or now - self._periods[-1][0] >= _PERIOD:
            self._periods.append((now, LatencyHistogram(FINE_BUCKETS)))
        self._periods[-1][1].observe(label, seconds)

    def counts(self) -> dict[str, dict[int, int]]:
        """Return the counts of each label over the window."""
        while self._periods and time.monotonic() - self._periods[0][0] >= WINDOW:
            self._periods.popleft()
        totals: dict[str, Counter[int]] = {}
        for _, histogram in self._periods:
            for label, counts in histogram.counts.items():
                totals.setdefault(label, Counter()).update(dict(enumerate(counts)))
        return {label: dict(+total) for label, total in totals.items()}


def percentile(counts: Counts, share: float) -> float | None:
    """Return the time in seconds within which ``share`` (0 to 1) of the observations in :data:`FINE_BUCKETS` are.

    ``None`` without any.
    """
    rank, seen = math.ceil(share * sum(counts.values())), 0
    for bucket, count in sorted(counts.items()):
        seen += count
        if seen >= max(1, rank):
            return round(0.001 * 2 ** ((bucket + 0.5) / 8), 4)  # the middle of the bucket
    return None
