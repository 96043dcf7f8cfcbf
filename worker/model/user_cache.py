"""The user's cache folder, for files that can be recreated."""

import os
from pathlib import Path


def user_cache() -> Path:
    """Return vinoqueue's cache folder (XDG Base Directory Specification). It may not exist yet.

    Raises :class:`RuntimeError` when the user has no home directory.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vinoqueue"
