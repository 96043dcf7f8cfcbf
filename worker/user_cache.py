"""The folder for what can be made again."""

import os
from pathlib import Path


def user_cache() -> Path:
    """Return our folder in the user's cache (XDG Base Directory Specification); it may not exist yet.

    Raises :class:`RuntimeError` when the user has no home.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vinoqueue"
