"""The store is copied while it runs, and restored, by the commands of docs/operations.md."""

import re
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from shared.redis.keys import API_KEYS
from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet, free_port
from tests.support.store import Store

SECTION = (
    (Path(__file__).parents[2] / "docs" / "operations.md")
    .read_text(encoding="utf-8")
    .partition("\n## Backup and loss of the store\n")[2]
    .partition("\n## ")[0]
)


def copy(port: int, user: str, password: str, to: Path) -> None:
    """What ``valkey-cli --rdb`` does: the copy that a new replica of the store gets."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection, connection.makefile("rwb") as stream:
        for command in (f"AUTH {user} {password}", "REPLCONF rdb-only 1"):
            stream.write(f"{command}\r\n".encode())
            stream.flush()
            assert stream.readline() == b"+OK\r\n"
        stream.write(b"SYNC\r\n")
        stream.flush()
        while (line := stream.readline()) == b"\n":  # while the copy is made
            pass
        assert line.startswith(b"$"), line
        to.write_bytes(stream.read(int(line[1:])))


def kept_keys(folder: Path, *options: str, commands: Sequence[str] = ()) -> Any:
    """The API keys of a store that starts in ``folder``. Runs ``commands`` there, of which the last may end it."""
    store = Store(folder, free_port(), *options)
    store.start()
    try:
        with store.client() as client, suppress(redis.ConnectionError):
            found = client.hgetall(API_KEYS)
            for command in commands:
                while b"_in_progress:1" in client.execute_command(command):
                    time.sleep(0.02)
        return found
    finally:
        store.kill()


def test_a_store_is_restored_from_a_copy(empty_fleet: Fleet, tmp_path: Path) -> None:
    (rule,) = re.findall(r"^    user (.*)$", SECTION, re.MULTILINE)
    user, *rules = rule.split()
    commands = re.findall(r"^    valkey-cli (.*?)(?:    #.*)?$", SECTION, re.MULTILINE)[1:]
    assert [command.split()[0] for command in commands] == ["config", "info", "shutdown"]
    empty_fleet.key("create")
    with empty_fleet.redis() as store:
        store.execute_command("ACL", "SETUSER", user, "reset", *rules)
        kept = store.hgetall(API_KEYS)
    assert kept
    folders = [tmp_path / name for name in ("by the commands", "at once")]
    for folder in folders:
        folder.mkdir()
        copy(empty_fleet.store.port, user, "BACKUP_PASSWORD", folder / "dump.rdb")
    restored, ignored = folders
    assert kept_keys(restored, "--appendonly", "no", commands=commands) == kept
    assert kept_keys(restored, "--appendonly", "yes") == kept
    assert kept_keys(ignored, "--appendonly", "yes") == {}
