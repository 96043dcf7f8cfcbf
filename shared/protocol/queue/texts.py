"""The texts of the queue's scripts, and the key prefixes that are passed to them."""

from shared.redis import keys, scripts

PREFIXES = (keys.PAYLOAD_PREFIX, keys.STATE_PREFIX, keys.JOURNAL_PREFIX)
"""Prefixes of a job's keys, in the order of the scripts' arguments."""


def script_text(name: str) -> str:
    """Return a script's text. All scripts but *enqueue* may run at the store's memory limit: they free memory."""
    return scripts.text_with_prelude("shared.protocol.queue", name)
