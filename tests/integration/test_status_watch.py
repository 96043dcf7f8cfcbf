"""``vinoqueue status --watch`` in a terminal and elsewhere."""

import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest

from shared.runtime.processes import module_command
from tests.support.fleet import Fleet, fleet
from tests.support.terminal import Terminal


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("watch")) as fleet_of_one:
        fleet_of_one.worker()
        yield fleet_of_one


def command(running: Fleet) -> list[str]:
    return module_command("cli.main", "status", "--watch", "--redis-url", running.url)


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_a_terminal_shows_changes_until_it_is_interrupted(running: Fleet, kind: str) -> None:
    with closing(Terminal(command(running), kind=kind)) as terminal:
        terminal.until("WORKER")
        terminal.until("serving")
        terminal.until("No API replicas.")
        terminal.until("WORKER")  # refreshed
        terminal.type("\x03")
        assert terminal.ended() == 0
        terminal.until("\r\n")


def test_a_lost_store_is_shown_and_the_watch_goes_on(running: Fleet) -> None:
    with closing(Terminal(command(running), kind="xterm")) as terminal:
        terminal.until("serving")
        with running.redis() as client:
            client.config_set("maxclients", 1)
            terminal.until("The store can't be reached")
            client.config_set("maxclients", 1000)
        terminal.until("serving")
        terminal.type("\x03")
        assert terminal.ended() == 0


def test_elsewhere_it_prints_plain_text(running: Fleet) -> None:
    with subprocess.Popen(command(running), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("WORKER")
            assert any(line.startswith("WORKER") for line in process.stdout)  # refreshed
        finally:
            process.terminate()
