"""The figures of a load: throughput, percentiles of latencies, errors by kind."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from cli.bench.endpoint import Outcome, gaps, time_per_token

_LATENCIES = {
    "ttft_ms": "Time to first token",
    "tpot_ms": "Time per output token",
    "itl_ms": "Inter-token latency",
    "e2e_ms": "End-to-end latency",
}
_FIGURES = ("mean", "p50", "p95", "p99")


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the figures as a JSON object. Throughput and latencies are those of complete responses."""
    good = [outcome for outcome in outcomes if not outcome.error]
    seconds = (
        max(outcome.ended for outcome in outcomes) - min(outcome.started for outcome in outcomes) if outcomes else 0.0
    )
    tokens = sum(outcome.tokens for outcome in good)
    prompt = [outcome.prompt_tokens for outcome in good if outcome.prompt_tokens is not None]
    return {
        "completed": len(good),
        "failed": len(outcomes) - len(good),
        "duration_s": round(seconds, 3),
        "peak_concurrency": _peak(outcomes),
        "prompt_tokens": sum(prompt) if len(prompt) == len(good) else None,
        "output_tokens": tokens,
        "output_tokens_are_chunks": any(outcome.output_tokens is None for outcome in good),
        "requests_per_s": _rate(len(good), seconds),
        "output_tokens_per_s": _rate(tokens, seconds),
        "ttft_ms": _spread(outcome.arrivals[0] - outcome.started for outcome in good),
        "tpot_ms": _spread(time for outcome in good if not math.isnan(time := time_per_token(outcome))),
        "itl_ms": _spread(gap for outcome in good for gap in gaps(outcome)),
        "e2e_ms": _spread(outcome.ended - outcome.started for outcome in good),
        "errors": _errors(outcomes),
    }


def as_text(found: dict[str, Any]) -> str:
    prompt = "not reported" if found["prompt_tokens"] is None else f"{found['prompt_tokens']:,}"
    counted = " (chunks: the server reports no usage)" if found["output_tokens_are_chunks"] else ""
    lines = [
        f"{'Completed requests':<24}{found['completed']:>12,}",
        f"{'Failed requests':<24}{found['failed']:>12,}",
        f"{'Duration (s)':<24}{found['duration_s']:>12,.2f}",
        f"{'Peak concurrency':<24}{found['peak_concurrency']:>12,}",
        f"{'Prompt tokens':<24}{prompt:>12}",
        f"{'Output tokens':<24}{found['output_tokens']:>12,}{counted}",
        f"{'Requests/s':<24}{found['requests_per_s']:>12,.2f}",
        f"{'Output tokens/s':<24}{found['output_tokens_per_s']:>12,.2f}",
    ]
    if found["completed"]:
        lines += ["", f"{'Latency (ms)':<24}" + "".join(f"{name:>12}" for name in _FIGURES)]
        for field, name in _LATENCIES.items():
            if found[field] is not None:
                lines.append(f"{name:<24}" + "".join(f"{found[field][figure]:>12,.2f}" for figure in _FIGURES))
    if found["errors"]:
        lines += ["", "Errors"]
        lines += [f"{error['count']:>8,}  {kind}: {error['example']}" for kind, error in found["errors"].items()]
    return "\n".join(lines)


def percentile(values: Iterable[float], share: float) -> float:
    """Return a percentile of ``values``, interpolated between the two nearest ones; 0 without values."""
    ordered = sorted(values) or [0.0]
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _spread(seconds: Iterable[float]) -> dict[str, float] | None:
    values = list(seconds)
    if not values:
        return None
    figures = [math.fsum(values) / len(values), *(percentile(values, share) for share in (0.5, 0.95, 0.99))]
    return {name: round(1000 * figure, 3) for name, figure in zip(_FIGURES, figures, strict=True)}


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 3) if seconds else 0.0


def _peak(outcomes: Iterable[Outcome]) -> int:
    """Return how many requests were in flight at the same time."""
    # At equal times, an end comes before a start.
    changes = sorted([(outcome.started, 1) for outcome in outcomes] + [(outcome.ended, -1) for outcome in outcomes])
    peak = running = 0
    for _, change in changes:
        running += change
        peak = max(peak, running)
    return peak


def _errors(outcomes: Iterable[Outcome]) -> dict[str, dict[str, Any]]:
    """Return the errors by kind, the most frequent first, each with the message of its first occurrence."""
    found: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        if outcome.error:
            error = found.setdefault(outcome.error, {"count": 0, "example": outcome.message})
            error["count"] += 1
    return dict(sorted(found.items(), key=lambda item: -item[1]["count"]))
