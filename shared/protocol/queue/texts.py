"""The texts of the queue's scripts, and the key prefixes that are passed to them."""

from importlib.resources import files

from shared.redis import keys

PREFIXES = (keys.PAYLOAD_PREFIX, keys.STATE_PREFIX, keys.JOURNAL_PREFIX)
"""Prefixes of a job's keys, in the order of the scripts' arguments."""


def script_text(name: str) -> str:
    """Return a script's text: its flags, which must come first, the prelude, and the body.

    All scripts but *enqueue* may run at the store's memory limit, because they free memory.
    """
    folder = files("shared.protocol.queue")
    flags, _, body = (folder / f"{name}.lua").read_text().partition("\n")
    return f"{flags}\n{(folder / 'prelude.lua').read_text()}{body}"
