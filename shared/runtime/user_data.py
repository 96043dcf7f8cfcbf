"""The user's data folder, for files that can't be recreated."""

import os
from pathlib import Path


def user_data() -> Path:
    """Return vinoqueue's data folder (XDG Base Directory Specification). It may not exist yet.

    Raises :class:`RuntimeError` when the user has no home directory.
    """
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "vinoqueue"
