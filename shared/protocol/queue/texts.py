"""The scripts' texts, and where jobs lie, which all of them are told."""

from importlib.resources import files

from shared.redis import keys

PREFIXES = (keys.PAYLOAD_PREFIX, keys.STATE_PREFIX, keys.JOURNAL_PREFIX)
"""What the keys of a job begin with, in the order in which scripts take them."""


def script_text(name: str) -> str:
    """A script's text: its flags, which must come first, the prelude, and the rest.

    All but *enqueue* may run while the store is at its memory limit: they are what empties it.
    """
    folder = files("shared.protocol.queue")
    flags, _, body = (folder / f"{name}.lua").read_text().partition("\n")
    return f"{flags}\n{(folder / 'prelude.lua').read_text()}{body}"
