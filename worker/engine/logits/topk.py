"""Log probabilities from rows of logits."""

import numpy
from numpy.typing import NDArray

Row = NDArray[numpy.float32]
_STRIDES = 64


def log_normalizer(row: Row) -> float:
    """Return the logarithm of the sum of ``exp(row)``: a logit minus it is a log probability."""
    highest = row.max()
    powers = row - highest
    numpy.exp(powers, out=powers)
    # In f32, as the pipeline sums: NumPy adds in pairs, so the error is about 1e-7.
    return float(highest + numpy.log(powers.sum()))


def top(row: Row, count: int) -> NDArray[numpy.int64]:
    """Return the ids of the ``count`` highest logits, highest first; of equal ones, the lower id first.

    Only columns with one of the highest maxima can contain such a logit, where the row is written as a table of
    ``_STRIDES`` lines. That is much faster than partitioning the whole row.
    """
    count = min(count, len(row))
    columns = len(row) // _STRIDES
    maxima = row[: columns * _STRIDES].reshape(_STRIDES, columns).max(axis=0)
    best = numpy.flatnonzero(maxima >= _highest(maxima, count))
    candidates = (numpy.arange(0, columns * _STRIDES, columns or 1)[:, None] + best).reshape(-1)
    candidates = numpy.concatenate([candidates, numpy.arange(columns * _STRIDES, len(row))])
    values = row[candidates]
    candidates = candidates[values >= _highest(values, count)]
    order = numpy.lexsort((candidates, -row[candidates]))
    ids: NDArray[numpy.int64] = candidates[order][:count]
    return ids


def _highest(values: Row, count: int) -> float:
    """Return the lowest of the ``count`` highest values, or less if there are not so many."""
    return float(numpy.partition(values, -count)[-count]) if count < len(values) else -numpy.inf
