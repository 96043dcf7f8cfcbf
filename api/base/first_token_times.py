"""Times to first token of the last 15 minutes, as histograms that replicas exchange through the registry.

A replica's registry record carries its histograms. The sum over all replicas gives percentiles of the whole service.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping

WINDOW = 900
"""Length of the window in seconds."""

_PERIOD = 60.0
"""Length in seconds of the periods in which the window advances."""
_SMALLEST = 0.001
"""Lower bound in seconds of the first bin."""
_PER_OCTAVE = 8
"""Bins per doubling. A bin is 9 % wide, so a percentile is at most 5 % off."""
_LAST = 20 * _PER_OCTAVE

Histogram = Mapping[int, int]
"""Number of requests per bin."""


class FirstTokenTimes:
    """The times to first token of one replica, per model."""

    def __init__(self) -> None:
        self._periods: deque[tuple[float, dict[str, Counter[int]]]] = deque()

    def record(self, model: str, seconds: float) -> None:
        """Count a request of ``model`` that got its first token after ``seconds``."""
        now = time.monotonic()
        if not self._periods or now - self._periods[-1][0] >= _PERIOD:
            self._periods.append((now, {}))
        self._periods[-1][1].setdefault(model, Counter())[_bin(seconds)] += 1

    def histograms(self) -> dict[str, Histogram]:
        """Return the histogram of each model over the window."""
        while self._periods and time.monotonic() - self._periods[0][0] >= WINDOW:
            self._periods.popleft()
        totals: dict[str, Counter[int]] = {}
        for _, models in self._periods:
            for model, counts in models.items():
                totals.setdefault(model, Counter()).update(counts)
        return dict(totals)


def combined(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of ``histograms``."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return total


def percentile(histogram: Histogram, share: float) -> float | None:
    """Return the time in seconds within which ``share`` (0 to 1) of the requests got their first token.

    ``None`` for an empty histogram.
    """
    rank = math.ceil(share * sum(histogram.values()))
    seen = 0
    for number, count in sorted(histogram.items()):
        seen += count
        if seen >= max(1, rank):
            return round(_SMALLEST * 2 ** ((number + 0.5) / _PER_OCTAVE), 4)
    return None


def _bin(seconds: float) -> int:
    return min(_LAST, max(0, int(_PER_OCTAVE * math.log2(max(seconds, _SMALLEST) / _SMALLEST))))
