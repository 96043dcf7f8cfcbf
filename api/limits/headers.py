"""Rate limit headers in OpenAI's form."""

from collections.abc import Mapping

from api.limits.limiter import Counts, LimitName


def openai_rate_headers(counts: Mapping[LimitName, Counts]) -> dict[str, str]:
    """Return ``x-ratelimit-{limit,remaining,reset}-{requests,tokens}`` for the limits that are set."""
    headers: dict[str, str] = {}
    for name, count in counts.items():
        headers[f"x-ratelimit-limit-{name}"] = str(count.limit)
        headers[f"x-ratelimit-remaining-{name}"] = str(count.remaining)
        headers[f"x-ratelimit-reset-{name}"] = duration(count.reset)
    return headers


def duration(seconds: float) -> str:
    """Return a duration in Go's format, as OpenAI does: ``17ms``, ``1s``, ``7.66s``, ``6m0s``, ``1h0m5s``."""
    milliseconds = round(seconds * 1000)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
