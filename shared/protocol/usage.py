"""What a key used of a model on one day, as the store counts it (``book.lua``).

A worker notes what a job used with its end, in one script, and each note counts once: whatever is killed, a job that
ends once counts once.
"""

import msgspec

DAY = 86_400
"""Seconds of a day. Days are those of UTC, numbered from 1970-01-01."""

RETENTION = 400 * DAY
"""For how many seconds a day's usage is kept."""

MOST_FIELDS = 10_000
"""Maximum number of combinations of key, kind and model that a day counts apart. The rest counts for :data:`REST`."""

SPENT_DAYS = 32
"""For how many days the tokens of a key are kept for its budgets."""

REST = "*"
"""Stands for the keys and models of the combinations beyond :data:`MOST_FIELDS`."""


def account_of(key: str, team: str) -> str:
    """Return whom the store's scripts charge for a job: ``KEY``, or ``KEY@TEAM`` for a key of a team."""
    return f"{key}@{team}" if team else key


class UsageCounts(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Counts in the order in which the store has them. Their sums are integers below 2**53."""

    requests: int = 0
    """Requests that a worker has served to their end, however they ended."""
    prompt_tokens: int = 0
    """Tokens of prompts, counted once for all choices of a prompt."""
    cached_tokens: int = 0
    """Those of them that the prefix cache supplied."""
    completion_tokens: int = 0
    """Generated tokens of all choices, including those that no client has read."""
    reasoning_tokens: int = 0
    """Those of them that were reasoning. API replicas count them, which parse the text."""
    images: int = 0
    engine_ms: int = 0
    """Time (ms) from when the engine got a sequence until its end, in the attempt that ended it."""
    errors: int = 0
    """Choices that a worker refused, or that failed."""

    def encode(self) -> str:
        """Return the counts as the store's scripts read them."""
        return " ".join(map(str, msgspec.structs.astuple(self)))

    @classmethod
    def decode(cls, stored: bytes) -> "UsageCounts":
        """Return the counts in ``stored``. Raises :class:`ValueError` if they are none."""
        return msgspec.convert(tuple(map(int, stored.split())), cls)

    def __add__(self, other: "UsageCounts") -> "UsageCounts":
        sums = map(sum, zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True))
        return msgspec.convert(tuple(sums), UsageCounts)
