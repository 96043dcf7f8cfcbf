"""The texts of the queue's scripts, and the constants that they share with Python."""

from functools import cache
from typing import Literal

from shared.protocol import usage
from shared.redis import keys, scripts

JOB_TTL_MS = 6 * 3_600_000
"""TTL (ms) of a job's records."""

LINGER_MS = 60_000
"""TTL (ms) of a journal after its job has ended."""

MOVES_TTL_MS = 300_000
"""TTL (ms) of the log of moves, and how long a move is shown."""

ServedTier = Literal["priority", "default", "flex", "batch"]
"""A service tier with its own priority class."""

PRIORITY_CLASSES: dict[ServedTier, int] = {"priority": -3, "default": -2, "flex": -1, "batch": 0}
"""The priority class of each tier, in the order in which they are served. Scores stay far below the current time in ms,
because arq defers jobs with a future score, and are never 0, which arq takes for a missing job."""

_CONSTANTS: dict[str, str | int] = {
    "PAYLOAD": keys.PAYLOAD_PREFIX,
    "STATE": keys.state(""),
    "JOURNAL": keys.journal(""),
    "STEPS": keys.journal_steps(""),
    "NEEDED": keys.journal_needed(""),
    "FIRST_CLASS": PRIORITY_CLASSES["priority"],
    "BATCH_CLASS": PRIORITY_CLASSES["batch"],
    "JOB_TTL": JOB_TTL_MS,
    "LINGER": LINGER_MS,
    "MOVES_TTL": MOVES_TTL_MS,
    "USAGE_TTL": usage.RETENTION * 1000,
}


def queue_keys(model: str) -> tuple[str, ...]:
    """Return the keys that all scripts get first."""
    kinds = (keys.queue, keys.inflight, keys.claims, keys.sizes, keys.load, keys.serving, keys.fair_queue, keys.ended)
    return tuple(key(model) for key in kinds)


@cache
def script_text(name: str, database: int) -> str:
    """Return a script's text for a database. All but *enqueue* may run at the store's memory limit: they free some."""
    constants = {**_CONSTANTS, "WORKER_CHANNEL": keys.worker_channel("", database)}
    return scripts.text_with_prelude("shared.protocol.queue", name, constants)
