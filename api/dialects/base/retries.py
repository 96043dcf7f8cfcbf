"""Response headers that tell SDKs whether and when to retry a refused request."""

import math

from shared.protocol.errors import Problem, ProblemKind


def retry_after_headers(problem: Problem) -> dict[str, str]:
    """Return the headers with the time after which a retry may succeed; empty if it is unknown."""
    if problem.retry_after is None:
        return {}
    # The SDKs prefer the header in milliseconds; other clients read the standard one, in whole seconds.
    return {
        "retry-after": str(math.ceil(problem.retry_after)),
        "retry-after-ms": str(math.ceil(problem.retry_after * 1000)),
    }


def retry_headers(problem: Problem, *, retry: bool) -> dict[str, str]:
    """Return the headers that OpenAI's and Anthropic's SDKs obey. ``retry``: whether the kind of problem may pass."""
    headers = retry_after_headers(problem)
    # A request larger than its key's limit never fits, so that problem has no retry time.
    if not retry or (problem.kind is ProblemKind.TOKENS_LIMITED and problem.retry_after is None):
        headers["x-should-retry"] = "false"
    return headers
